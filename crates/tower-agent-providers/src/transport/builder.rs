use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::base_url::BaseUrl;
use super::build_error::ModelBuildError;
use super::config::{Config, FetchKey, KeySource, PerCall, sensitive};
use super::issuer::Issuer;
use super::model::HttpModel;
use super::secrets::{Secrets, without_secrets};
use crate::protocol::{Framing, Protocol, provider_name};
use tower_agent::error::BoxError;

/// Builds an [`HttpModel`]; created by [`HttpModel::builder`].
///
/// ```
/// # #[cfg(feature = "openai")] {
/// use tower_agent_providers::openai::OpenAi;
///
/// let azure = OpenAi::builder()
///     .base_url("https://me.openai.azure.com/openai/deployments/mine?api-version=2024-10-21")
///     .header("api-key", "..")
///     .model("gpt-4o");
/// # let _ = azure;
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct HttpModelBuilder<P> {
    protocol: P,
    model: Option<String>,
    base_url: Option<String>,
    api_key: Option<String>,
    fetch_key: Option<FetchKey>,
    headers: Vec<(String, String)>,
    max_response: usize,
    keeps_usage: bool,
    issuer: Option<String>,
}

/// The default limit of a response, which leaves room for images and audio.
const MAX_RESPONSE: usize = 64 << 20;

impl<P: Protocol + Default> HttpModel<P, ()> {
    /// Creates a builder.
    pub fn builder() -> HttpModelBuilder<P> {
        HttpModelBuilder::new(P::default())
    }
}

#[cfg(feature = "http-client")]
impl<P: Protocol + Default> HttpModel<P, super::client::HttpClient> {
    /// Creates a model configured by the protocol's environment variables, such as
    /// `OPENAI_BASE_URL` and `OPENAI_API_KEY`, with the default client.
    ///
    /// Set the model's name with [`with_model`](Self::with_model) or in a request's settings.
    ///
    /// # Errors
    ///
    /// Fails with a [`ModelBuildError`] that names the invalid part.
    pub fn from_env() -> Result<Self, ModelBuildError> {
        HttpModelBuilder::new(P::default()).build()
    }
}

impl<P: Protocol> HttpModelBuilder<P> {
    /// Creates a builder for a protocol with options of its own.
    pub fn new(protocol: P) -> Self {
        Self {
            protocol,
            model: None,
            base_url: None,
            api_key: None,
            fetch_key: None,
            headers: Vec::new(),
            max_response: MAX_RESPONSE,
            keeps_usage: false,
            issuer: None,
        }
    }

    /// Returns the protocol, to change its options.
    pub fn protocol_mut(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// Sets the model, unless a request's settings name another.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the base URL: the address before the protocol's own path, such as `/chat/completions`.
    /// It may have a query.
    ///
    /// The [version](Protocol::base_url) of the provider's API may be left out:
    /// `https://api.openai.com` is `https://api.openai.com/v1`. A layer under the client can change
    /// the address of a server that has none.
    ///
    /// Defaults to the environment variable [`BASE_URL_VARIABLE`](Protocol::BASE_URL_VARIABLE), or
    /// else to the provider's own.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the API key, sent in the [protocol's header](Protocol::key_header). An empty key is not
    /// sent.
    ///
    /// Defaults to the environment variable [`KEY_VARIABLE`](Protocol::KEY_VARIABLE), or else to
    /// the [others](Protocol::OTHER_KEY_VARIABLES) of the protocol, unless a
    /// [`header`](Self::header) of that name, or named `authorization` or `api-key`, is set. A
    /// server without authentication needs neither.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Fetches the API key for each call, for keys that change: those of a vault, and the tokens of
    /// a cloud. It takes precedence over [`api_key`](Self::api_key) and the environment.
    ///
    /// Keep a key that is still valid in `fetch`: nothing is kept here. If it fails, the call fails
    /// with its error, or with [`ErrorKind::Auth`](tower_agent::ErrorKind::Auth) if that is none of
    /// this library. Dropping the call drops the fetch.
    ///
    /// ```
    /// # #[cfg(feature = "openai")] {
    /// use tower_agent::BoxError;
    /// use tower_agent_providers::openai::OpenAi;
    ///
    /// async fn token() -> Result<String, BoxError> {
    ///     Ok(std::fs::read_to_string("/run/secrets/token")?)
    /// }
    ///
    /// let model = OpenAi::builder().model("gpt-4o").api_key_with(token);
    /// # let _ = model;
    /// # }
    /// ```
    pub fn api_key_with<F, Fut>(mut self, fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        self.fetch_key = Some(Arc::new(move || fetch().boxed()));
        self
    }

    /// Adds a header to every call; it replaces a default header of that name.
    ///
    /// Values are marked sensitive, so that layers that print headers omit them.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets whether the usage is kept as the server states it, in
    /// [`Metadata::stated_usage`](tower_agent::message::Metadata::stated_usage): it may say more
    /// than is counted, such as the searches that the server made. Defaults to `false`.
    pub fn keep_stated_usage(mut self, keeps: bool) -> Self {
        self.keeps_usage = keeps;
        self
    }

    /// Names who makes the opaque data of the answers, such as signatures and sealed reasoning. It
    /// is sent back to models with the same name alone, and left out of the calls of others, which
    /// would refuse it: conversations keep the name as its
    /// [issuer](tower_agent::message::ProviderData::issuer).
    ///
    /// Set one name for several clients that take the data of one another, such as one for a
    /// company and one for a gateway before it, or for two keys of one organisation. Set different
    /// ones for accounts of which each refuses the data of the other.
    ///
    /// Defaults to the company that the host belongs to, or else to the host: on Azure to the host
    /// of the resource. Reasoning that OpenAI seals in Responses is bound to an account, by its
    /// default known by the headers `openai-project` or `openai-organization`, or else by a short
    /// digest of the key; of a key that is [fetched](Self::api_key_with), nothing is known.
    pub fn issuer(mut self, name: impl Into<String>) -> Self {
        self.issuer = Some(name.into());
        self
    }

    /// Sets how many bytes of a response are read, those of all events of a stream together. A
    /// longer one fails with a [`Protocol`](tower_agent::ErrorKind::Protocol) error. Defaults to 64
    /// MiB. A single line of a stream, which is kept until its end has come, may have half of it.
    ///
    /// Of the response with an error at most 1 MiB is read.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// Builds the model with the default HTTP client, which all models share that are built this
    /// way: see [`HttpClient::shared`](super::HttpClient::shared).
    ///
    /// # Errors
    ///
    /// Fails with a [`ModelBuildError`] that names the invalid part.
    #[cfg(feature = "http-client")]
    pub fn build(self) -> Result<HttpModel<P, super::client::HttpClient>, ModelBuildError> {
        let http = super::client::HttpClient::shared()?;
        self.build_with(http)
    }

    /// Builds the model with any HTTP service.
    ///
    /// # Errors
    ///
    /// Fails with a [`ModelBuildError`] that names the invalid part.
    pub fn build_with<S>(mut self, http: S) -> Result<HttpModel<P, S>, ModelBuildError> {
        self.protocol.complete(&environment);
        let config = self.config()?;
        Ok(HttpModel::new(http, self.protocol, config, self.model))
    }

    fn config(&self) -> Result<Config, ModelBuildError> {
        let given = self.base_url.clone();
        let given = given.or_else(|| environment(P::BASE_URL_VARIABLE));
        let base = match &given {
            Some(given) => parse_base_url(given, &self.protocol.base_url(given.trim()))?,
            None => {
                let default = self.protocol.default_base_url();
                let default = default.map_err(ModelBuildError::Option)?;
                parse_base_url(&default, &default)?
            }
        };
        let own = parse_base_url(P::BASE_URL, P::BASE_URL)?;

        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept(P::FRAMING)));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let given = self.given_headers()?;
        let (key_name, _) = self.protocol.key_header("");
        // A caller with an own way to authenticate must not also send the key of the environment,
        // perhaps to another provider's server.
        let has_own = given.contains_key(AUTHORIZATION)
            || given.contains_key("api-key")
            || given.contains_key(key_name);
        let mut key_variable = P::KEY_VARIABLE;
        let mut per_call = self.fetch_key.clone().map(PerCall::Key);
        let (key, source) = match &self.api_key {
            _ if per_call.is_some() => (None, KeySource::Caller),
            Some(key) => (Some(key.clone()), KeySource::Caller),
            None if has_own => (None, KeySource::Caller),
            None if self.has_credentials() => {
                per_call = self.signature();
                (None, KeySource::Caller)
            }
            None => match key_of_environment::<P>() {
                Some((name, key)) => {
                    key_variable = name;
                    (Some(key), KeySource::Environment)
                }
                None => {
                    per_call = self.signature();
                    let is_signed = per_call.is_some();
                    (
                        None,
                        if is_signed {
                            KeySource::Caller
                        } else {
                            KeySource::Nowhere
                        },
                    )
                }
            },
        };
        check_signature(per_call.as_ref())?;
        // A key read from a file ends with a newline, which no header may contain.
        let key = key
            .map(|key| key.trim().to_owned())
            .filter(|key| !key.is_empty());
        if let Some(key) = &key {
            let (name, value) = self.protocol.key_header(key);
            headers.insert(name, sensitive(&value).ok_or(ModelBuildError::ApiKey)?);
        }
        // Before the headers are merged: the protocol's own ones are no secrets.
        let secrets = Secrets::new(key, &given, base.query());
        // A header that is given replaces all values of its name.
        for more in [self.protocol.headers(), given] {
            for name in more.keys() {
                headers.remove(name);
            }
            headers.extend(more);
        }
        // A server on this machine is not missing a key.
        let is_local = own
            .host()
            .parse()
            .is_ok_and(|host: IpAddr| host.is_loopback());
        let is_default_host = base.host() == own.host() && !is_local;
        let issuer = match &self.issuer {
            Some(name) => Issuer::named(P::PROVIDER, name),
            None => Issuer::of_host(P::PROVIDER, P::TARGET, base.host(), &headers),
        };
        Ok(Config {
            provider: provider_name(base.host()).or(cloud::<P>()),
            base,
            issuer,
            is_default_host,
            headers,
            secrets,
            key: source,
            key_variable,
            per_call,
            max_response: self.max_response,
            stated_usage: if self.keeps_usage { P::USAGE } else { &[] },
        })
    }

    /// Returns whether the caller has set credentials that sign the calls.
    fn has_credentials(&self) -> bool {
        #[cfg(feature = "bedrock")]
        return self
            .protocol
            .aws()
            .is_some_and(|access| access.has_credentials());
        #[cfg(not(feature = "bedrock"))]
        return false;
    }

    /// Returns the signature with the caller's credentials, or else with those of the environment.
    fn signature(&self) -> Option<PerCall> {
        #[cfg(feature = "bedrock")]
        {
            let access = self.protocol.aws()?;
            let access = if access.has_credentials() {
                Some(access.clone())
            } else {
                access.of_environment(&environment)
            };
            access.map(PerCall::Signature)
        }
        #[cfg(not(feature = "bedrock"))]
        None
    }

    fn given_headers(&self) -> Result<HeaderMap, ModelBuildError> {
        let mut given = HeaderMap::new();
        for (at, (name, value)) in self.headers.iter().enumerate() {
            let parsed = HeaderName::try_from(name)
                .map_err(|_| ModelBuildError::HeaderName { number: at + 1 })?;
            let value = sensitive(value)
                .ok_or_else(|| ModelBuildError::HeaderValue { name: name.clone() })?;
            given.append(parsed, value);
        }
        Ok(given)
    }
}

/// Fails if the calls cannot be signed, which would otherwise be seen at the first one.
fn check_signature(per_call: Option<&PerCall>) -> Result<(), ModelBuildError> {
    match per_call {
        #[cfg(feature = "bedrock")]
        Some(PerCall::Signature(access)) => {
            let region = access.require_region();
            region.map(drop).map_err(ModelBuildError::Option)
        }
        _ => Ok(()),
    }
}

/// Reads the base URL that a given one stands for. That may contain a key and is shown in the error
/// without it.
fn parse_base_url(given: &str, url: &str) -> Result<BaseUrl, ModelBuildError> {
    BaseUrl::parse(url).map_err(|reason| ModelBuildError::BaseUrl {
        url: without_secrets(given),
        reason,
    })
}

/// Servers may send a plain response even if a stream was requested.
fn accept(framing: Framing) -> &'static str {
    match framing {
        Framing::ServerSentEvents => "application/json, text/event-stream",
        Framing::Lines => "application/json, application/x-ndjson",
        #[cfg(feature = "bedrock")]
        Framing::AwsEventStream => "application/json, application/vnd.amazon.eventstream",
    }
}

/// Returns the cloud that a protocol is made for, whatever the host: a gateway may stand in front
/// of it.
fn cloud<P: Protocol>() -> Option<&'static str> {
    Some(P::TARGET).filter(|target| *target != P::PROVIDER)
}

const AGENT: &str = concat!("tower-agent/", env!("CARGO_PKG_VERSION"));

/// Returns the key, and the name of its variable.
fn key_of_environment<P: Protocol>() -> Option<(&'static str, String)> {
    let mut names = [P::KEY_VARIABLE]
        .into_iter()
        .chain(P::OTHER_KEY_VARIABLES.iter().copied());
    names.find_map(|name| Some((name, environment(name)?)))
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.trim().is_empty())
}

impl<P: Protocol> fmt::Debug for HttpModelBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpModelBuilder")
            .field("provider", &P::PROVIDER)
            .field("model", &self.model)
            .field("base_url", &self.base_url.as_deref().map(without_secrets))
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}
