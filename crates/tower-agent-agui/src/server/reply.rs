//! Responses sent before anything runs.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::body::Body;
use crate::sse;
use crate::wire::{InputError, InputErrorKind};

/// A rejected request and the reason.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
    path: Option<String>,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
    /// The methods that are allowed.
    allow: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            path: None,
            code: None,
            retry_after: None,
            allow: None,
        }
    }

    /// Creates the response for a method that is not one of these.
    fn not_allowed(allow: &'static str, message: &str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut error = Map::from_iter([("message".to_owned(), json!(self.message))]);
        error.extend(
            self.path
                .map(|path| ("path".to_owned(), Value::String(path))),
        );
        error.extend(self.code.map(|code| ("code".to_owned(), json!(code))));
        let body = Bytes::from(json!({ "error": error }).to_string());
        let mut response = Response::new(Body::error(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        response
    }
}

impl From<InputError> for Refusal {
    fn from(error: InputError) -> Self {
        let status = match error.kind() {
            InputErrorKind::Syntax => StatusCode::BAD_REQUEST,
            InputErrorKind::Invalid | InputErrorKind::Forbidden => StatusCode::UNPROCESSABLE_ENTITY,
            InputErrorKind::NotOpen | InputErrorKind::Expired | InputErrorKind::Busy => {
                StatusCode::CONFLICT
            }
            InputErrorKind::TooManyRuns => StatusCode::TOO_MANY_REQUESTS,
            InputErrorKind::Store | InputErrorKind::Overloaded | InputErrorKind::ShuttingDown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self {
            // `.` is the whole input, which says nothing about where the error is.
            path: Some(error.path().to_owned()).filter(|path| path != "."),
            code: Some(error.kind().code()),
            retry_after: error.retry_after(),
            ..Self::new(status, error.message())
        }
    }
}

/// Creates the response for a request without a principal.
pub(super) fn unknown() -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "the sender of this request could not be identified",
    )
}

/// Creates the response for a thread that the server does not know, or that is of somebody else.
pub(super) fn no_thread() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "the thread is not known")
}

/// A request whose head can be answered.
pub(super) enum Wanted {
    Run,
    /// The stored thread with this id.
    Thread(String),
}

/// Checks whether the head of a request can be answered. A server without a store has no threads.
pub(super) fn check(parts: &Parts, has_store: bool) -> Result<Wanted, Refusal> {
    let wanted = match parts.method {
        Method::POST => {
            check_type(parts)?;
            Wanted::Run
        }
        Method::GET if has_store => Wanted::Thread(thread_id(parts)?),
        Method::GET => {
            let message =
                "this server keeps no threads: each client has its own. Use POST to start a run";
            return Err(Refusal::not_allowed("POST", message));
        }
        _ if has_store => {
            let message = "use POST to start a run, and GET to read a thread";
            return Err(Refusal::not_allowed("GET, POST", message));
        }
        _ => return Err(Refusal::not_allowed("POST", "use POST to start a run")),
    };
    if !accepts_events(&parts.headers) {
        let message = format!(
            "the response is `{}`, which the request does not accept",
            sse::CONTENT_TYPE
        );
        return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, message));
    }
    Ok(wanted)
}

fn thread_id(parts: &Parts) -> Result<String, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let mut fields = form_urlencoded::parse(query.as_bytes());
    let thread = fields.find(|(name, _)| name == "threadId");
    let (_, thread) = thread.ok_or_else(|| {
        let message = "name the thread in the query: `?threadId=..`";
        Refusal::new(StatusCode::BAD_REQUEST, message)
    })?;
    Ok(thread.into_owned())
}

fn check_type(parts: &Parts) -> Result<(), Refusal> {
    // Also keeps out forms of other sites, which a browser posts without asking first.
    if !is_json(&parts.headers) {
        let message = "the body must be JSON, with the content type `application/json`";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    value.is_some_and(|value| essence(value).eq_ignore_ascii_case("application/json"))
}

fn accepts_events(headers: &HeaderMap) -> bool {
    // No header means that any media type is accepted.
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    for value in headers.get_all(ACCEPT) {
        let Ok(ranges) = value.to_str() else {
            continue;
        };
        for range in ranges.split(',').filter(|range| !is_refused(range)) {
            let range = essence(range);
            if ["*/*", "text/*", sse::CONTENT_TYPE]
                .iter()
                .any(|accepted| accepted.eq_ignore_ascii_case(range))
            {
                return true;
            }
        }
    }
    false
}

/// Returns whether the weight is zero, which excludes the media range.
fn is_refused(range: &str) -> bool {
    let weights = range
        .split(';')
        .filter_map(|parameter| parameter.trim().strip_prefix("q="));
    weights
        .filter_map(|weight| weight.parse::<f32>().ok())
        .any(|weight| weight <= 0.0)
}

fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// Creates the response with the events of a run.
pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(sse::CONTENT_TYPE));
    // A cache would send one user's run to another.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies of the nginx family would otherwise buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Creates the response with the events of a stored thread.
pub(super) fn thread(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(sse::CONTENT_TYPE));
    // Two users read different threads at one address.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
