//! Accepts only requests from a browser on this machine, on the page that this server sent.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use serde_json::json;

/// The names under which a browser on this machine reaches the server.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

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
        let is_own = |host: &str| NAMES.iter().any(|name| is_at(host, name, port));
        let target = request.uri().authority();
        let host = the_only(headers, &HOST).filter(|host| is_own(host));
        let Some(host) = host.filter(|_| target.is_none_or(|target| is_own(target.as_str())))
        else {
            return Err(refusal(&format!(
                "only http://{}:{port} is served here",
                NAMES[0]
            )));
        };
        let origin = format!("http://{host}");
        let is_elsewhere = |from: &[u8]| !from.eq_ignore_ascii_case(origin.as_bytes());
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

/// Returns whether `host` is `name:port`. Browsers omit port 80.
fn is_at(host: &str, name: &str, port: u16) -> bool {
    host.eq_ignore_ascii_case(&format!("{name}:{port}"))
        || (port == 80 && host.eq_ignore_ascii_case(name))
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
