//! The bodies of requests.

use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tower_agent::BoxError;

use super::reply::Refusal;

/// The maximum length of a body that names something, in bytes.
pub(super) const NAMES: usize = 16 << 10;

/// The time in which a body has to arrive.
const TIME: Duration = Duration::from_secs(30);

/// Reads a body of at most so many bytes.
pub(super) async fn json<T, B>(parts: &Parts, body: B, most: usize) -> Result<T, Refusal>
where
    T: DeserializeOwned,
    B: http_body::Body<Error: Into<BoxError>>,
{
    let invalid = |status, why: String| Refusal::new(status, "invalid", why);
    // What a form of another page can send without being asked is no JSON.
    let content_type = parts.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next());
    if !media_type.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json")) {
        let why = "send JSON, as `content-type: application/json`".to_owned();
        return Err(invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let body = Limited::new(body, most).collect();
    let body = timeout(TIME, body).await.map_err(|_| {
        let why = format!("the body did not arrive within {TIME:?}");
        invalid(StatusCode::REQUEST_TIMEOUT, why)
    })?;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let why = format!("the body is longer than {most} bytes");
            return invalid(StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        let why = "the body cannot be read".to_owned();
        invalid(StatusCode::BAD_REQUEST, why)
    })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| invalid(StatusCode::BAD_REQUEST, error.to_string()))
}
