use http::Method;

use super::Protocol;
use super::fault::Fault;
use tower_agent::Request;
use tower_agent::error::Result;
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

/// A call of a provider beside that of its model, whose response comes in one piece.
///
/// [`HttpOperations`](crate::operations::HttpOperations) is the service of each operation that a
/// protocol has.
pub trait Operation<R: Request>: Protocol {
    /// Returns the HTTP call. `model` is that of the service.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](tower_agent::ErrorKind::InvalidRequest) for anything that the
    /// protocol cannot represent.
    fn operation(&self, request: &R, model: Option<&str>) -> Result<OperationCall>;

    /// Returns the request with another prompt, if it has one and `prompt` returns one for it: what
    /// a model would not be sent is not counted either. Defaults to `None`.
    fn with_prompt(
        &self,
        request: &R,
        prompt: &dyn Fn(&ModelRequest) -> Option<ModelRequest>,
    ) -> Option<R> {
        let _ = (request, prompt);
        None
    }

    /// Reads the body of a response with a successful status. `metadata` is that of its head.
    ///
    /// # Errors
    ///
    /// Fails with what the provider reported, or how the body violates the protocol.
    fn result(&self, request: &R, body: &[u8], metadata: Metadata) -> Result<R::Response, Fault>;
}

/// Returns a part of a response, such as its models, or else the error that the body is instead.
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub(crate) fn required<T>(
    part: Option<T>,
    what: &str,
    protocol: &impl Protocol,
    body: &[u8],
) -> Result<T, Fault> {
    part.ok_or_else(|| {
        let fault = protocol.fault(body);
        fault.unwrap_or_else(|| Fault::protocol(format!("the response has no {what}")))
    })
}

/// The HTTP call of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

impl OperationCall {
    /// Creates a call that reads what is at a path under the base URL. The path begins with `/`.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: Vec::new(),
        }
    }

    /// Creates a call that sends JSON to a path under the base URL. The path begins with `/`.
    #[must_use]
    pub fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: Method::POST,
            path: path.into(),
            body: body.into(),
        }
    }
}
