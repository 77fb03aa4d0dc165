use std::fmt;
use std::sync::OnceLock;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

use super::secrets::{is_number, port, without_secrets};

/// The address that the paths of calls are under. It may have a query, which every call sends.
#[derive(Clone)]
pub(super) struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    host: String,
    /// Without a `/` at its end.
    path: String,
    query: Option<String>,
    /// The URL of the first path that was called: most clients call no other.
    first: OnceLock<(String, Uri)>,
}

impl BaseUrl {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| error.to_string())?;
        let parts = uri.into_parts();
        let scheme = parts
            .scheme
            .filter(|s| *s == Scheme::HTTP || *s == Scheme::HTTPS);
        let Some(scheme) = scheme else {
            return Err("it must start with `http://` or `https://`".into());
        };
        let authority = match parts.authority {
            // The text of a URL is logged in many places, a header with a secret is not.
            Some(authority) if authority.as_str().contains('@') => {
                return Err("it contains credentials; send them in a header".into());
            }
            Some(authority) if !port(authority.as_str()).is_none_or(is_number) => {
                return Err("its port is not a number; send a key in a header".into());
            }
            Some(authority) if !authority.host().is_empty() => authority,
            _ => return Err("it has no host".into()),
        };
        let old = parts.path_and_query.as_ref();
        // The paths of protocols begin with a `/`.
        let path = old
            .map_or("", PathAndQuery::path)
            .trim_end_matches('/')
            .to_owned();
        let query = old.and_then(PathAndQuery::query).map(str::to_owned);
        let host = authority.host().to_owned();
        Ok(Self {
            scheme,
            authority,
            host,
            path,
            query,
            first: OnceLock::new(),
        })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port: that of the scheme if the URL names none.
    pub(super) fn port(&self) -> u16 {
        let of_scheme = if self.scheme == Scheme::HTTPS {
            443
        } else {
            80
        };
        self.authority.port_u16().unwrap_or(of_scheme)
    }

    pub(super) fn query(&self) -> &str {
        self.query.as_deref().unwrap_or_default()
    }

    /// Returns the URL of a call, with the queries of both.
    pub(super) fn join(&self, path: &str) -> Result<Uri, http::Error> {
        if let Some((first, url)) = self.first.get()
            && first == path
        {
            return Ok(url.clone());
        }
        let url = self.build(path)?;
        // Clients that call many paths keep only the first.
        let _ = self.first.set((path.to_owned(), url.clone()));
        Ok(url)
    }

    fn build(&self, path: &str) -> Result<Uri, http::Error> {
        let mut whole = format!("{}{path}", self.path);
        if let Some(query) = &self.query {
            whole.push(if path.contains('?') { '&' } else { '?' });
            whole.push_str(query);
        }
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(whole)
            .build()
    }
}

/// Without parts that may contain a key.
impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scheme,
            authority,
            path,
            ..
        } = self;
        let url = without_secrets(&format!("{scheme}://{authority}{path}"));
        f.write_str(&url)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Returns whether a header names the media type `wanted`.
pub(super) fn is_media_type(header: Option<&HeaderValue>, wanted: &str) -> bool {
    let value = header.map(HeaderValue::as_bytes).unwrap_or_default();
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(wanted.as_bytes())
}
