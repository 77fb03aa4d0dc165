//! Accepts only requests from a browser on this machine, on the page that this server sent.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use serde_json::json;
use tower_agent::serve::{is_loopback_host, is_own_origin};

/// Rejects requests for another host and requests from pages of other origins.
///
/// Listening on the loopback only is not enough: with DNS rebinding, another page can point its own
/// name here, and its scripts can then read the responses. The browser still sends that name as the
/// `Host`. A page that posts directly is recognised by its `Origin`.
#[expect(clippy::result_large_err, reason = "tower-http takes it in this shape")]
pub(crate) fn is_local(
    port: u16,
) -> impl Fn(&mut Request<Body>) -> Result<(), Response<Body>> + Clone + Send + Sync + 'static {
    move |request| {
        let headers = request.headers();
        let is_own = |host: &str| is_loopback_host(host, Some(port));
        let target = request.uri().authority();
        let host = the_only(headers, &HOST).filter(|host| is_own(host));
        let Some(host) = host.filter(|_| target.is_none_or(|target| is_own(target.as_str())))
        else {
            return Err(refusal(&format!(
                "only http://127.0.0.1:{port} is served here"
            )));
        };
        let is_elsewhere = |from: &[u8]| !is_own_origin(from, "http", host);
        if headers
            .get_all(ORIGIN)
            .iter()
            .any(|from| is_elsewhere(from.as_bytes()))
        {
            return Err(refusal("only the page that this server sent may ask"));
        }
        Ok(())
    }
}

/// Returns the value of a header that must occur exactly once.
fn the_only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() {
        None
    } else {
        first.to_str().ok()
    }
}

fn refusal(message: &str) -> Response<Body> {
    let mut response = Response::new(
        json!({ "error": { "message": message } })
            .to_string()
            .into(),
    );
    *response.status_mut() = StatusCode::FORBIDDEN;
    let json = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
