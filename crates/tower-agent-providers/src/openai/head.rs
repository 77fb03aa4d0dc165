use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::config::Config;
use super::fault::Fault;
use tower_agent::error::{BoxError, Error, ErrorKind};
use tower_agent::message::Metadata;

/// Data from the head of a response, used in the response and in errors.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) metadata: Metadata,
    status: StatusCode,
    retry_after: Option<Duration>,
    should_retry: Option<bool>,
    config: Arc<Config>,
}

/// Maximum length of the part of a non-JSON body that goes into an error's message.
const SNIPPET: usize = 200;

impl Head {
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, config: Arc<Config>) -> Self {
        let secrets = &config.secrets;
        let mut metadata = Metadata::default().with_status(status.as_u16());
        if let Some(id) = text(headers, "x-request-id") {
            metadata = metadata.with_request_id(secrets.hide(id));
        }
        for (name, value) in headers {
            if name.as_str().starts_with("x-ratelimit-")
                && let Ok(value) = value.to_str()
            {
                metadata = metadata.with_rate_limit(name.as_str(), secrets.hide(value));
            }
        }
        let should_retry = match text(headers, "x-should-retry") {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        Self { metadata, status, retry_after: retry_after(headers), should_retry, config }
    }

    /// Adds metadata from the body; a request id in the headers takes precedence.
    pub(super) fn learn(&mut self, id: Option<&str>, model: Option<&str>) {
        let mut metadata = std::mem::take(&mut self.metadata);
        if let (None, Some(id)) = (metadata.request_id(), id) {
            metadata = metadata.with_request_id(self.config.secrets.hide(id));
        }
        if let Some(model) = model {
            metadata = metadata.with_model(self.config.secrets.hide(model));
        }
        self.metadata = metadata;
    }

    /// Returns the error for a response with an unsuccessful status.
    pub(super) fn refused(&self, body: &[u8]) -> Error {
        let fault = serde_json::from_slice(body).ok().as_ref().and_then(Fault::read);
        let fault = fault.unwrap_or_else(|| {
            Fault::new(match self.snippet(body) {
                text if text.is_empty() => self.reason(),
                text => format!("{}: {text}", self.reason()),
            })
        });
        self.fault(&fault, Some(self.status))
    }

    /// Returns the error for an error object in place of a response.
    pub(super) fn fault_inside(&self, fault: &Fault) -> Error {
        self.fault(fault, None)
    }

    /// Returns the error for a response that violates the protocol.
    pub(super) fn protocol(&self, message: impl Into<String>) -> Error {
        self.error(ErrorKind::Protocol, message.into())
    }

    /// Returns the error for a part of the response with invalid JSON.
    pub(super) fn malformed(&self, what: &str, found: &str, body: &[u8]) -> Error {
        self.protocol(format!("{what} is not the expected JSON ({found}): {}", self.snippet(body)))
    }

    /// Returns the error for a body that broke off.
    pub(super) fn broke(&self, error: BoxError) -> Error {
        let error = super::connection::broke(error);
        match error.metadata().status() {
            Some(_) => error,
            None => error.with_metadata(self.metadata.clone()),
        }
    }

    fn reason(&self) -> String {
        match self.status.canonical_reason() {
            Some(reason) => format!("the server responded with {} {reason}", self.status.as_u16()),
            None => format!("the server responded with {}", self.status.as_u16()),
        }
    }

    fn fault(&self, fault: &Fault, status: Option<StatusCode>) -> Error {
        let kind = fault.kind(status);
        let hint = if kind == ErrorKind::Auth { self.config.key_hint() } else { String::new() };
        let mut error = self.error(kind, format!("{}{hint}", fault.message));
        let retryable = if fault.is_out_of_quota() { Some(false) } else { self.should_retry };
        if let Some(retryable) = retryable {
            error = error.with_retryable(retryable);
        }
        match self.retry_after {
            Some(after) => error.with_retry_after(after),
            None => error,
        }
    }

    /// Returns the start of a body on one line. Secrets are hidden before it is cut.
    fn snippet(&self, body: &[u8]) -> String {
        let text = self.config.secrets.hide(&String::from_utf8_lossy(body));
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            if let Some((end, _)) = line.char_indices().nth(SNIPPET) {
                line.truncate(end);
                line.push_str("..");
                break;
            }
        }
        line
    }

    fn error(&self, kind: ErrorKind, message: String) -> Error {
        Error::new(kind, self.config.secrets.hide(&message)).with_metadata(self.metadata.clone())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|text| !text.is_empty())
}

/// Returns the wait that the server asks for: in milliseconds, in seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(Ok(millis)) = text(headers, "retry-after-ms").map(|t| t.trim().parse::<f64>()) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let text = text(headers, RETRY_AFTER.as_str())?.trim();
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}
