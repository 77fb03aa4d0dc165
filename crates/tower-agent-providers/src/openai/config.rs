use std::fmt;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri};

use super::connection;
use super::secrets::{Secrets, is_number, port, without_secrets};
use tower_agent::error::{BoxError, Error, ErrorKind};

/// Configuration shared by all calls of a client.
pub(super) struct Config {
    pub(super) url: Uri,
    pub(super) headers: HeaderMap,
    /// The name of `max_tokens` at this host.
    pub(super) limit_field: &'static str,
    pub(super) secrets: Secrets,
    pub(super) key: KeySource,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &without_secrets(&self.url.to_string()))
            .finish_non_exhaustive()
    }
}

/// Where the API key came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeySource {
    /// The builder's key or headers.
    Caller,
    /// [`KEY_VARIABLE`].
    Environment,
    /// No key is sent.
    Nowhere,
}

pub(super) const KEY_VARIABLE: &str = "OPENAI_API_KEY";

impl Config {
    /// Returns the error of an HTTP call that got no response. A user without a key may not have
    /// chosen a server either, so it mentions both.
    pub(super) fn unreached(&self, error: BoxError) -> Error {
        let error = connection::failed(error);
        let is_default = self.url.host().is_some_and(|host| host == "api.openai.com");
        if error.kind() != ErrorKind::Connection || !is_default || self.key != KeySource::Nowhere {
            return error;
        }
        let message = format!("{}{}", error.message(), self.key_hint());
        error.with_message(message)
    }

    /// Returns a hint about the key, for a server that rejected it or was not reached.
    pub(super) fn key_hint(&self) -> String {
        match self.key {
            KeySource::Caller => String::new(),
            KeySource::Environment => format!("; the key is the one in `{KEY_VARIABLE}`"),
            KeySource::Nowhere => format!(
                "; no API key is set: set `{KEY_VARIABLE}`, or call `api_key` on the builder"
            ),
        }
    }
}

/// Returns the URL of the chat-completions call under `base`, with its query.
pub(super) fn chat_url(base: &str) -> Result<Uri, String> {
    let uri: Uri = base.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let mut parts = uri.into_parts();
    if !parts.scheme.as_ref().is_some_and(|s| *s == Scheme::HTTP || *s == Scheme::HTTPS) {
        return Err("it must start with `http://` or `https://`".into());
    }
    match &parts.authority {
        Some(authority) if authority.as_str().contains('@') => {
            return Err("it contains credentials; send them in a header".into());
        }
        Some(authority) if !port(authority.as_str()).is_none_or(is_number) => {
            return Err("its port is not a number; send a key in a header".into());
        }
        Some(authority) if !authority.host().is_empty() => {}
        _ => return Err("it has no host".into()),
    }
    let old = parts.path_and_query.as_ref();
    let path = old.map_or("", PathAndQuery::path).trim_end_matches('/');
    let new = match old.and_then(PathAndQuery::query) {
        Some(query) => format!("{path}/chat/completions?{query}"),
        None => format!("{path}/chat/completions"),
    };
    parts.path_and_query = Some(new.parse().map_err(|e: http::uri::InvalidUri| e.to_string())?);
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

/// Returns whether a header names the media type `wanted`.
pub(super) fn is_media_type(header: Option<&HeaderValue>, wanted: &str) -> bool {
    let value = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted)
}
