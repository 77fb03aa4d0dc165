use std::ops::Deref;

use http::HeaderMap;

/// The headers of one call, in the extensions of its request: a callback or a layer puts them
/// there.
///
/// They replace the model's headers of the same name. A server that repeats a value in an error
/// does not show it, unless the header's name is that of something harmless.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use tower_agent::callback::before_model;
/// use tower_agent::ModelRequest;
/// use tower_agent_providers::RequestHeaders;
///
/// let traced = before_model(|request: &mut ModelRequest| {
///     let mut headers = HeaderMap::new();
///     headers.insert("x-team", HeaderValue::from_static("search"));
///     request.extensions_mut().insert(RequestHeaders::from(headers));
/// });
/// # drop(traced);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaders(HeaderMap);

impl From<HeaderMap> for RequestHeaders {
    fn from(headers: HeaderMap) -> Self {
        Self(headers)
    }
}

impl Deref for RequestHeaders {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.0
    }
}
