use std::sync::Arc;

use serde_json::{Map, Value};

#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
use crate::protocol::Fault;
use tower_agent::call::CallKind;
#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Metadata, Usage};
use tower_agent::{Request, RunContext};

/// A call that turns texts into vectors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbedRequest {
    /// The texts, each of which becomes a vector.
    pub input: Arc<[String]>,
    /// The model. Defaults to that of the service.
    pub model: Option<String>,
    /// The length of the vectors, for a model that has several. Defaults to the model's own.
    pub dimensions: Option<u32>,
    /// Further fields of the request, in the provider's terms, such as Gemini's `taskType`. They
    /// are [merged](crate#extra-settings) with ours, and cannot replace the texts.
    pub extra: Map<String, Value>,
    context: RunContext,
}

impl EmbedRequest {
    /// Creates a call for these texts.
    #[must_use]
    pub fn new(input: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            input: input.into_iter().map(Into::into).collect(),
            model: None,
            dimensions: None,
            extra: Map::new(),
            context: RunContext::default(),
        }
    }

    /// Sets the run that the call belongs to.
    #[must_use]
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }
}

impl Request for EmbedRequest {
    type Response = EmbedResponse;

    const CALL: CallKind = CallKind::Other("embed");

    fn context(&self) -> &RunContext {
        &self.context
    }

    fn usage(response: &EmbedResponse) -> Usage {
        response.usage
    }
}

/// The vectors of texts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EmbedResponse {
    /// One vector for each text, in their order.
    pub embeddings: Vec<Vec<f32>>,
    /// The tokens of the texts. Zero if the provider does not say it.
    pub usage: Usage,
    /// Further fields of the provider's response.
    pub metadata: Metadata,
}

impl EmbedResponse {
    /// Creates a response.
    #[must_use]
    pub fn new(embeddings: Vec<Vec<f32>>, usage: Usage, metadata: Metadata) -> Self {
        Self {
            embeddings,
            usage,
            metadata,
        }
    }
}

/// Fails for a request that no provider accepts.
#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
pub(crate) fn check_embed(request: &EmbedRequest) -> Result<()> {
    if request.input.is_empty() {
        let message = "there is no text to embed";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    Ok(())
}

/// Returns the response with these vectors.
///
/// # Errors
///
/// Fails unless there is a vector for each text: a vector less would stand for the wrong text.
#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
pub(crate) fn embeddings_of(
    request: &EmbedRequest,
    embeddings: Vec<Vec<f32>>,
    tokens: u64,
    metadata: Metadata,
) -> Result<EmbedResponse, Fault> {
    let expected = request.input.len();
    if embeddings.len() != expected || embeddings.iter().any(Vec::is_empty) {
        let count = embeddings
            .iter()
            .filter(|vector| !vector.is_empty())
            .count();
        return Err(Fault::protocol(format!(
            "the server sent {count} embeddings of {expected} texts"
        )));
    }
    Ok(EmbedResponse::new(
        embeddings,
        Usage::new(tokens, 0),
        metadata,
    ))
}
