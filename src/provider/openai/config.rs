use std::fmt;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri};

/// What every call of one client shares.
pub(super) struct Config {
    pub(super) url: Uri,
    pub(super) headers: HeaderMap,
    /// What `max_tokens` is called at this host.
    pub(super) limit_field: &'static str,
    pub(super) secrets: Secrets,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &without_secrets(&self.url.to_string()))
            .finish_non_exhaustive()
    }
}

/// What must not be printed, even where a server repeats it.
pub(super) struct Secrets(Vec<String>);

/// Shorter ones are no secrets (`x`, `-`), and hiding them would garble messages.
const SHORTEST_SECRET: usize = 4;

impl Secrets {
    pub(super) fn new(key: Option<String>, headers: &HeaderMap, url: &Uri) -> Self {
        let mut secrets = Vec::from_iter(key);
        for (name, value) in headers {
            if names_a_secret(name.as_str()) {
                secrets.extend(value.to_str().iter().copied().flat_map(with_its_words));
            }
        }
        for pair in url.query().unwrap_or_default().split('&') {
            match pair.split_once('=') {
                Some((name, value)) if names_a_secret(name) => secrets.push(value.to_owned()),
                _ => {}
            }
        }
        secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        // The longest first: one may be a part of another.
        secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    /// The text with every secret in it hidden.
    pub(super) fn hide(&self, mut text: String) -> String {
        for secret in &self.0 {
            if text.contains(secret) {
                text = text.replace(secret, "[hidden]");
            }
        }
        text
    }
}

/// A header's value, and what follows a scheme such as `Bearer` in it.
fn with_its_words(value: &str) -> impl Iterator<Item = String> {
    let token = value.split_once(' ').map(|(_, token)| token.trim());
    std::iter::once(value).chain(token).map(ToOwned::to_owned)
}

fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "sig"].iter().any(|word| name.contains(word))
}

/// The address of the chat-completions call under `base`, keeping its query.
pub(super) fn chat_url(base: &str) -> Result<Uri, String> {
    let uri: Uri = base.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let mut parts = uri.into_parts();
    if !parts.scheme.as_ref().is_some_and(|s| *s == Scheme::HTTP || *s == Scheme::HTTPS) {
        return Err("it must begin with `http://` or `https://`".into());
    }
    match &parts.authority {
        Some(authority) if authority.as_str().contains('@') => {
            return Err("it holds credentials; send them as a header".into());
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

/// A URL without its credentials and its query, either of which may hold a key.
pub(super) fn without_secrets(url: &str) -> &str {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

/// Whether a header says that its body is of the media type `wanted`.
pub(super) fn is_media_type(header: Option<&HeaderValue>, wanted: &str) -> bool {
    let value = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted)
}
