use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::ModelRequest;

/// One call: the request, and what the client adds to it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    request: &'a ModelRequest,
    model: Option<&'a str>,
    host: &'a str,
}

impl<'a> Call<'a> {
    /// Creates a call without a model of its own and without a host.
    #[must_use]
    pub fn new(request: &'a ModelRequest) -> Self {
        Self {
            request,
            model: None,
            host: "",
        }
    }

    /// Sets the model, unless the request's settings name another.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<Option<&'a str>>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the host of the base URL.
    #[must_use]
    pub fn with_host(mut self, host: &'a str) -> Self {
        self.host = host;
        self
    }

    /// Returns the same call with another request.
    #[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
    pub(crate) fn with_request<'b>(self, request: &'b ModelRequest) -> Call<'b>
    where
        'a: 'b,
    {
        Call { request, ..self }
    }

    /// Returns the request.
    pub fn request(&self) -> &'a ModelRequest {
        self.request
    }

    /// Returns the name of the model: that of the request's settings, or else the client's. A field
    /// `model` in [`extra`](tower_agent::Settings::extra) replaces both.
    #[must_use]
    pub fn model(&self) -> Option<&'a str> {
        let settings = self.request.settings();
        match settings.extra.get("model") {
            Some(extra) => extra.as_str(),
            None => settings.model.as_deref().or(self.model),
        }
    }

    /// Returns the name of the model.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest) if there is none.
    pub fn require_model(&self) -> Result<&'a str> {
        self.model().ok_or_else(|| {
            let message = "no model name: set it on the client or in the request's settings";
            Error::new(ErrorKind::InvalidRequest, message)
        })
    }

    /// Returns the host of the base URL: some fields depend on who serves the protocol.
    #[must_use]
    pub fn host(&self) -> &'a str {
        self.host
    }

    /// Returns whether a streamed response is requested.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        self.request.delta_sender().is_some()
    }
}
