use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::base_url::BaseUrl;
use super::build_error::ModelBuildError;
use super::connection;
use super::issuer::Issuer;
use super::secrets::Secrets;
#[cfg(feature = "bedrock")]
use super::signature;
#[cfg(feature = "bedrock")]
use crate::protocol::AwsAccess;
use crate::protocol::Protocol;
use tower_agent::error::{BoxError, Error, ErrorKind};

/// Fetches the API key of a call.
pub(super) type FetchKey =
    Arc<dyn Fn() -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync>;

/// Configuration shared by all calls of a client.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) base: BaseUrl,
    /// The name of the provider that is called, as tables of prices have it, if it is known.
    pub(super) provider: Option<&'static str>,
    /// The issuer of the opaque data that is sent.
    pub(super) issuer: Issuer,
    /// Set if the provider's own host is called.
    pub(super) is_default_host: bool,
    pub(super) headers: HeaderMap,
    pub(super) secrets: Secrets,
    pub(super) key: KeySource,
    /// The environment variable of the key.
    pub(super) key_variable: &'static str,
    /// The authorisation that is made anew for each call.
    pub(super) per_call: Option<PerCall>,
    /// The limit of a response in bytes.
    pub(super) max_response: usize,
    /// The places of the usage that is kept as the server states it.
    pub(super) stated_usage: &'static [&'static str],
}

/// The authorisation of one call.
#[derive(Clone)]
pub(super) enum PerCall {
    /// A key that is fetched.
    Key(FetchKey),
    /// A signature of AWS.
    #[cfg(feature = "bedrock")]
    Signature(AwsAccess),
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// The place that the API key came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeySource {
    /// The builder's key or headers.
    Caller,
    /// The environment.
    Environment,
    /// No key is sent.
    Nowhere,
}

impl Config {
    /// Returns the URL of a call.
    pub(super) fn url(&self, path: &str) -> Result<Uri, Error> {
        self.base.join(path).map_err(|error| {
            Error::new(
                ErrorKind::InvalidRequest,
                format!("the path `{path}` is invalid: {error}"),
            )
        })
    }

    /// Adds what authorises the call to its request.
    pub(super) async fn authorise(
        &mut self,
        per_call: &PerCall,
        protocol: &impl Protocol,
        request: &mut Request<Bytes>,
    ) -> Result<(), Error> {
        match per_call {
            PerCall::Key(fetch) => {
                let key = fetch()
                    .await
                    .map_err(|error| unfetched("the API key", error))?;
                let (name, value) = self.key_header(protocol, &key)?;
                // A header of the caller takes precedence over the key.
                request.headers_mut().entry(name).or_insert(value);
                Ok(())
            }
            #[cfg(feature = "bedrock")]
            PerCall::Signature(access) => {
                if request.headers().contains_key(http::header::AUTHORIZATION) {
                    return Ok(());
                }
                let credentials = access
                    .credentials()
                    .await
                    .map_err(|error| unfetched("the credentials", error))?;
                let Some(credentials) = credentials else {
                    return Ok(());
                };
                // A server that finds a wrong signature repeats what was signed.
                self.secrets.add_key(credentials.secret_access_key());
                if let Some(token) = credentials.session_token() {
                    self.secrets.add_key(token);
                }
                signature::add(access, &credentials, request)
            }
        }
    }

    /// Returns the header with a key that was fetched for one call.
    fn key_header(
        &mut self,
        protocol: &impl Protocol,
        key: &str,
    ) -> Result<(HeaderName, HeaderValue), ModelBuildError> {
        // A key read from a file ends with a newline, which no header may contain.
        let key = key.trim();
        self.secrets.add_key(key);
        let (name, value) = protocol.key_header(key);
        Ok((name, sensitive(&value).ok_or(ModelBuildError::ApiKey)?))
    }

    /// Adds the headers of one call.
    pub(super) fn add_headers(&mut self, headers: &HeaderMap) {
        self.secrets.add_headers(headers);
        for name in headers.keys() {
            self.headers.remove(name);
        }
        self.headers.extend(headers.clone());
        self.issuer = self.issuer.clone().for_headers(&self.headers);
    }

    /// Returns the error of an HTTP call that got no response. A user without a key may not have
    /// chosen a server either, so it mentions both.
    pub(super) fn unreached(&self, error: BoxError) -> Error {
        let error = connection::failed(error);
        let is_ours = self.is_default_host && self.key == KeySource::Nowhere;
        if error.kind() != ErrorKind::Connection || !is_ours {
            return error;
        }
        let message = format!("{}{}", error.message(), self.key_hint());
        error.with_message(message)
    }

    /// Adds the method and the URL of the call: a wrong base URL is seen at once.
    pub(super) fn located(&self, error: Error, method: &Method, path: &str) -> Error {
        // An error of a model below knows its own.
        if error.metadata().endpoint.is_some() {
            return error;
        }
        let path = path.split('?').next().unwrap_or_default();
        let endpoint = self.secrets.hide(&format!("{method} {}{path}", self.base));
        let mut metadata = error.metadata().clone();
        metadata.endpoint = Some(endpoint);
        error.with_metadata(metadata)
    }

    /// Returns a hint about the key, for a server that rejected it or was not reached.
    pub(super) fn key_hint(&self) -> String {
        let variable = self.key_variable;
        match self.key {
            KeySource::Caller => String::new(),
            KeySource::Environment => format!("; the key is the one in `{variable}`"),
            KeySource::Nowhere => {
                format!("; no API key is set: set `{variable}`, or call `api_key` on the builder")
            }
        }
    }
}

/// Returns the error of a key or of credentials that could not be fetched.
fn unfetched(what: &str, error: BoxError) -> Error {
    let error = Error::from(error);
    if error.kind() != ErrorKind::Other {
        return error;
    }
    let message = format!("{what} could not be fetched: {}", error.message());
    Error::new(ErrorKind::Auth, message).with_source(error)
}

/// Returns the value of a header that layers do not print.
pub(super) fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
