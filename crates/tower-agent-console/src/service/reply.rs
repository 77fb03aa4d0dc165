//! Responses.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use tower_agent::Error;

use super::body::ResponseBody;
use crate::not_recorded::NotRecorded;

/// A request that is not answered, and the reason.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// The operator does not see content.
    pub(super) fn content() -> Self {
        let why = "the operator does not see the texts of runs";
        Self::new(StatusCode::FORBIDDEN, "forbidden", why)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is nothing with this name",
        )
    }

    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
    }

    pub(super) fn not_allowed() -> Self {
        let why = "use GET to look at the console, and POST to answer, to resume, to export, to delete and to fork";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid", why)
    }

    pub(super) fn parameter(name: &str) -> Self {
        let why = format!("the parameter `{name}` cannot be read");
        Self::new(StatusCode::BAD_REQUEST, "invalid", why)
    }

    pub(super) fn into_response(self) -> Response<ResponseBody> {
        let error = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = json(&error);
        *response.status_mut() = self.status;
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            let allow = HeaderValue::from_static("GET, POST");
            response.headers_mut().insert(ALLOW, allow);
        }
        response
    }
}

/// Of the database, whose own words are for the log.
impl From<Error> for Refusal {
    fn from(_: Error) -> Self {
        Self::unavailable("the database of the console does not answer; try again when it does")
    }
}

impl From<NotRecorded> for Refusal {
    fn from(error: NotRecorded) -> Self {
        match &error {
            NotRecorded::NoStep { .. } => Self::not_found(),
            // One that is not in the database either was not found before.
            _ => Self::new(StatusCode::CONFLICT, "not_recorded", error.to_string()),
        }
    }
}

/// Creates a response of this type.
pub(super) fn typed(
    content_type: &'static str,
    body: impl Into<ResponseBody>,
) -> Response<ResponseBody> {
    let mut response = Response::new(body.into());
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(super) fn json(value: &impl Serialize) -> Response<ResponseBody> {
    match serde_json::to_vec(value) {
        Ok(bytes) => typed("application/json", bytes),
        // Nothing here has keys that are no text, or numbers that are none.
        Err(error) => {
            tracing::error!(%error, "a response of the console failed to serialise");
            let mut response = typed("application/json", Vec::new());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

/// Adds what keeps other pages, and the browser's guesses, away from a response.
pub(super) fn guarded(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    set(
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    );
    set(X_FRAME_OPTIONS, "DENY");
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(REFERRER_POLICY, "no-referrer");
    set(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    // A cache would show one operator's view to another.
    set(CACHE_CONTROL, "no-store");
    response
}
