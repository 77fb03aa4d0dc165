use std::fmt;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::build_error::OpenAiBuildError;
use super::client::OpenAi;
use super::config::{Config, KEY_VARIABLE, KeySource, chat_url};
use super::secrets::{Secrets, without_secrets};

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// Builds an [`OpenAi`]; created by [`OpenAi::builder`].
///
/// ```
/// use tower_agent_providers::openai::OpenAi;
///
/// let azure = OpenAi::builder()
///     .base_url("https://me.openai.azure.com/openai/deployments/mine?api-version=2024-10-21")
///     .header("api-key", "..")
///     .model("gpt-4o");
/// # let _ = azure;
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct OpenAiBuilder {
    model: Option<String>,
    base_url: Option<String>,
    api_key: Option<String>,
    headers: Vec<(String, String)>,
}

impl OpenAi<()> {
    /// Creates a builder.
    pub fn builder() -> OpenAiBuilder {
        OpenAiBuilder::default()
    }
}

#[cfg(feature = "http-client")]
impl OpenAi<crate::HttpClient> {
    /// Creates a model configured by `OPENAI_BASE_URL` and `OPENAI_API_KEY`, with the default
    /// client.
    ///
    /// Set the model's name with [`with_model`](Self::with_model) or in a request's settings.
    ///
    /// # Errors
    ///
    /// Fails with an [`OpenAiBuildError`] that names the invalid part.
    pub fn from_env() -> Result<Self, OpenAiBuildError> {
        OpenAiBuilder::default().build()
    }
}

impl OpenAiBuilder {
    /// Sets the model, unless a request's settings name another.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the base URL: the address before `/chat/completions`. It may have a query.
    ///
    /// Defaults to `OPENAI_BASE_URL`, or else to OpenAI's own.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the API key, sent as a bearer token. An empty key is not sent.
    ///
    /// Defaults to `OPENAI_API_KEY`, unless a [`header`](Self::header) named `authorization` or
    /// `api-key` is set. A server without authentication needs neither.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Adds a header to every call; it replaces a default header of that name.
    ///
    /// Values are marked sensitive, so that layers that print headers omit them.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Builds the model with the default HTTP client.
    ///
    /// # Errors
    ///
    /// Fails with an [`OpenAiBuildError`] that names the invalid part.
    #[cfg(feature = "http-client")]
    pub fn build(self) -> Result<OpenAi<crate::HttpClient>, OpenAiBuildError> {
        let http = crate::HttpClient::new()?;
        self.build_with(http)
    }

    /// Builds the model with any HTTP service.
    ///
    /// # Errors
    ///
    /// Fails with an [`OpenAiBuildError`] that names the invalid part.
    pub fn build_with<S>(self, http: S) -> Result<OpenAi<S>, OpenAiBuildError> {
        let model = self.model.clone();
        Ok(OpenAi::new(http, self.config()?, model))
    }

    fn config(self) -> Result<Config, OpenAiBuildError> {
        let base_url = self
            .base_url
            .or_else(|| environment("OPENAI_BASE_URL"))
            .unwrap_or_else(|| DEFAULT_BASE_URL.into());
        let url = chat_url(base_url.trim()).map_err(|reason| OpenAiBuildError::BaseUrl {
            url: without_secrets(base_url.trim()),
            reason,
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let mut given = HeaderMap::new();
        for (at, (name, value)) in self.headers.iter().enumerate() {
            let parsed = HeaderName::try_from(name)
                .map_err(|_| OpenAiBuildError::HeaderName { number: at + 1 })?;
            let value = sensitive(value)
                .ok_or_else(|| OpenAiBuildError::HeaderValue { name: name.clone() })?;
            given.append(parsed, value);
        }
        let has_own = given.contains_key(AUTHORIZATION) || given.contains_key("api-key");
        let (key, source) = match self.api_key {
            Some(key) => (Some(key), KeySource::Caller),
            None if has_own => (None, KeySource::Caller),
            None => match environment(KEY_VARIABLE) {
                Some(key) => (Some(key), KeySource::Environment),
                None => (None, KeySource::Nowhere),
            },
        };
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        if let Some(key) = &key {
            let value = sensitive(&format!("Bearer {key}")).ok_or(OpenAiBuildError::ApiKey)?;
            headers.insert(AUTHORIZATION, value);
        }
        let secrets = Secrets::new(key, &given, &url);
        for name in given.keys() {
            headers.remove(name);
        }
        headers.extend(given);
        Ok(Config { limit_field: limit_field(&url), url, headers, secrets, key: source })
    }
}

const AGENT: &str = concat!("tower-agent/", env!("CARGO_PKG_VERSION"));

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// OpenAI's newer models reject `max_tokens`; servers such as Ollama ignore the newer name.
fn limit_field(url: &Uri) -> &'static str {
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    if host.ends_with(".openai.com") || host.ends_with(".openai.azure.com") {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

impl fmt::Debug for OpenAiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiBuilder")
            .field("model", &self.model)
            .field("base_url", &self.base_url.as_deref().map(without_secrets))
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}
