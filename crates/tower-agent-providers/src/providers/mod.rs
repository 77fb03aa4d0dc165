//! Chooses a model by name.

mod error;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tower_agent::error::BoxError;
use tower_agent::model::{BoxModel, ModelService};

pub use self::error::ProvidersError;

type Connect = dyn Fn(&str) -> Result<BoxModel, BoxError> + Send + Sync;

/// Providers by name, so that a program takes its model from its configuration:
/// `anthropic:claude-sonnet-4-5` is the model `claude-sonnet-4-5` of the provider `anthropic`.
///
/// ```
/// # #[cfg(all(feature = "http-client", feature = "openai"))] {
/// use tower_agent::Agent;
/// use tower_agent_providers::Providers;
///
/// # fn build() -> Result<(), tower_agent::BoxError> {
/// let name = std::env::var("MODEL")?;
/// let model = Providers::from_env().model(&name)?;
/// let agent = Agent::builder(model).build()?;
/// # drop(agent);
/// # Ok(())
/// # }
/// # }
/// ```
///
/// Layers around a model or its HTTP calls are part of what [`with`](Self::with) adds:
///
/// ```
/// # #[cfg(all(feature = "http-client", feature = "openai"))] {
/// use std::time::Duration;
///
/// use tower::ServiceBuilder;
/// use tower_agent_providers::openai::OpenAi;
/// use tower_agent_providers::{HttpClient, Providers};
///
/// let providers = Providers::from_env().with("local", |model| {
///     let http = ServiceBuilder::new().concurrency_limit(2).service(HttpClient::shared()?);
///     let server = OpenAi::builder().base_url("http://127.0.0.1:8080/v1").model(model);
///     Ok(ServiceBuilder::new()
///         .timeout(Duration::from_secs(60))
///         .service(server.build_with(http)?))
/// });
/// assert!(providers.model("local:qwen3").is_ok());
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Providers {
    connect: BTreeMap<String, Arc<Connect>>,
}

impl Providers {
    /// Creates a list without providers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider, or replaces the one of that name. `connect` receives the name of the model,
    /// without the provider and the colon.
    #[must_use]
    pub fn with<M: ModelService>(
        mut self,
        provider: impl Into<String>,
        connect: impl Fn(&str) -> Result<M, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.connect.insert(
            provider.into(),
            Arc::new(move |model| connect(model).map(BoxModel::new)),
        );
        self
    }

    /// Returns the names of the providers, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.connect.keys().map(String::as_str)
    }

    /// Returns the names for an error's text, which outlives the list.
    fn known(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    /// Returns the model named `<provider>:<model>`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Fails for a name without provider or model, for an unknown provider, and for one that is not
    /// configured correctly.
    pub fn model(&self, name: &str) -> Result<BoxModel, ProvidersError> {
        // Names come from configuration files and command lines, with blanks around them.
        let name = name.trim();
        let Some((provider, model)) = name.split_once(':') else {
            return Err(ProvidersError::NoProvider {
                name: name.to_owned(),
                known: self.known(),
            });
        };
        let provider = provider.trim();
        let model = model.trim();
        let Some(connect) = self.connect.get(provider) else {
            return Err(ProvidersError::Unknown {
                provider: provider.to_owned(),
                known: self.known(),
            });
        };
        if model.is_empty() {
            return Err(ProvidersError::NoModel {
                provider: provider.to_owned(),
            });
        }
        connect(model).map_err(|source| ProvidersError::Build {
            provider: provider.to_owned(),
            source: source.into(),
        })
    }
}

#[cfg(feature = "http-client")]
impl Providers {
    /// Creates a list of this crate's protocols whose features are enabled, with the default HTTP
    /// client.
    ///
    /// | provider | protocol | configured by |
    /// |---|---|---|
    /// | `anthropic` | Anthropic Messages | `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL` |
    /// | `bedrock` | Bedrock Converse | `AWS_REGION`, `AWS_BEARER_TOKEN_BEDROCK` or `AWS_ACCESS_KEY_ID` and the others |
    /// | `bedrock-anthropic` | Anthropic Messages on Bedrock | the same |
    /// | `gemini` | Gemini `generateContent` | `GEMINI_API_KEY` or `GOOGLE_API_KEY`, `GEMINI_BASE_URL` |
    /// | `gemini-interactions` | Gemini Interactions | the same |
    /// | `ollama` | Ollama `/api/chat` | `OLLAMA_HOST`, `OLLAMA_API_KEY` |
    /// | `openai` | OpenAI chat completions | `OPENAI_API_KEY`, `OPENAI_BASE_URL` |
    /// | `openai-responses` | OpenAI Responses | `OPENAI_API_KEY`, `OPENAI_BASE_URL` |
    /// | `vertex` | Gemini on Vertex AI | `GOOGLE_CLOUD_PROJECT`, `GOOGLE_CLOUD_LOCATION`, `GOOGLE_OAUTH_ACCESS_TOKEN` |
    /// | `vertex-anthropic` | Anthropic Messages on Vertex AI | the same |
    ///
    /// The variables are read when a model is [chosen](Self::model).
    #[must_use]
    pub fn from_env() -> Self {
        let providers = Self::new();
        #[cfg(feature = "anthropic")]
        let providers = providers
            .with_protocol::<crate::anthropic::Messages>("anthropic")
            .with_protocol::<crate::vertex::VertexMessages>("vertex-anthropic");
        #[cfg(feature = "bedrock")]
        let providers = providers
            .with_protocol::<crate::bedrock::Converse>("bedrock")
            .with_protocol::<crate::bedrock::BedrockMessages>("bedrock-anthropic");
        #[cfg(feature = "gemini")]
        let providers = providers
            .with_protocol::<crate::vertex::VertexGenerateContent>("vertex")
            .with_protocol::<crate::gemini::GenerateContent>("gemini")
            .with_protocol::<crate::gemini::Interactions>("gemini-interactions");
        #[cfg(feature = "ollama")]
        let providers = providers.with_protocol::<crate::ollama::Chat>("ollama");
        #[cfg(feature = "openai")]
        let providers = providers
            .with_protocol::<crate::openai::Chat>("openai")
            .with_protocol::<crate::openai::Responses>("openai-responses");
        providers
    }

    #[allow(dead_code, reason = "without features there are no protocols")]
    fn with_protocol<P: crate::protocol::Protocol + Default>(self, provider: &str) -> Self {
        self.with(provider, |model| {
            Ok(crate::transport::HttpModel::<P, _>::from_env()?.with_model(model))
        })
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
