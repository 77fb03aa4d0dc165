use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use tower_agent::error::ErrorKind;

/// Why a response is not an answer: an error that the provider reports, in any of the formats that
/// servers use, or a response that violates the protocol.
///
/// It may contain secrets that a server repeats; [`HttpModel`](crate::HttpModel) hides them and adds
/// status, request id and rate limits.
///
/// ```
/// use tower_agent_providers::protocol::Fault;
///
/// let body = br#"{"error": {"message": "Slow down.", "type": "rate_limit_error"}}"#;
/// assert_eq!(Fault::from_json(body).unwrap().message(), "Slow down.");
/// ```
#[derive(Clone)]
pub struct Fault {
    message: Cow<'static, str>,
    /// The part of the response that the message ends with.
    quote: Option<Vec<u8>>,
    kind: Option<ErrorKind>,
    retryable: Option<bool>,
    retry_after: Option<Duration>,
    /// Its `code` and `type`, if they are text.
    words: Vec<String>,
    /// Its `code`, if it is a number.
    number: Option<u16>,
}

const TOO_LONG: [&str; 10] = [
    "context length",
    "context limit",
    "context_length",
    "context window",
    "context size",
    "context_size",
    "context_window",
    "prompt is too long",
    "input is too long",
    "reduce the length of",
];

impl Fault {
    /// Creates an error that the provider reported, of kind [`Provider`](ErrorKind::Provider)
    /// unless the HTTP status says more.
    #[must_use]
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
            quote: None,
            kind: None,
            retryable: None,
            retry_after: None,
            words: Vec::new(),
            number: None,
        }
    }

    /// Creates the error of a response that violates the protocol.
    #[must_use]
    pub fn protocol(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(message).with_kind(ErrorKind::Protocol)
    }

    /// Creates the error of a stream that ended before the response was complete.
    #[must_use]
    pub fn incomplete() -> Self {
        Self::protocol("the stream ended early: the response is incomplete")
    }

    /// Reads the error in a JSON body; returns `None` if it contains none.
    #[must_use]
    pub fn from_json(json: &[u8]) -> Option<Self> {
        Self::read(&serde_json::from_slice(json).ok()?)
    }

    /// Reads `{"error": {..}}`, `{"error": ".."}`, `{"message": ".."}`, `{"detail": ..}` and the
    /// same in an array; returns `None` of anything else.
    #[must_use]
    pub fn read(body: &Value) -> Option<Self> {
        let body = body.get(0).unwrap_or(body);
        match body.get("error") {
            Some(Value::Null) | None => {}
            Some(error) => return Some(Self::of(error, body)),
        }
        // Some servers send the error itself, without an object around it.
        let says = ["message", "detail"]
            .iter()
            .any(|key| !body[*key].is_null());
        says.then(|| Self::of(body, body))
    }

    /// Returns the error in the data of an event that is known to be one.
    #[must_use]
    pub fn reported(data: &str) -> Self {
        Self::from_json(data.as_bytes()).unwrap_or_else(|| Self::new(data.to_owned()))
    }

    /// Reads an error object, or the text of an error, in the object `around` it.
    #[must_use]
    pub fn of(error: &Value, around: &Value) -> Self {
        let text = ["message", "detail", "msg"]
            .map(|key| &error[key])
            .into_iter()
            .chain([error, &around["message"]])
            .find_map(Value::as_str);
        let mut message = match text {
            Some(text) => text.to_owned(),
            // FastAPI reports a list of what is invalid.
            None if !error["detail"].is_null() => error["detail"].to_string(),
            None => error.to_string(),
        };
        if let Some(upstream) = upstream(&error["metadata"]) {
            message = format!("{message}: {upstream}");
        }
        let mut fault = Self::new(message);
        for value in [
            &error["code"],
            &error["type"],
            &error["status"],
            &around["code"],
        ] {
            match value {
                // Some servers send the HTTP status as text.
                Value::String(word) => match word.parse() {
                    Ok(number) => fault.number = fault.number.or(Some(number)),
                    Err(_) => fault.words.push(word.to_ascii_lowercase()),
                },
                Value::Number(number) => {
                    let number = number
                        .as_u64()
                        .and_then(|number| u16::try_from(number).ok());
                    fault.number = fault.number.or(number);
                }
                _ => {}
            }
        }
        // The call as the model wrote it, by which its fault is found.
        match error["failed_generation"].as_str() {
            Some(call) => fault.with_quote(call),
            None => fault,
        }
    }

    /// Sets the kind, which otherwise follows from the HTTP status, the `code` and the `type`.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Sets whether a retry may succeed, which otherwise follows from the kind.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// Sets the wait that the body asks for. One in the headers takes precedence.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Sets a part of the response, the start of which is shown after the message.
    #[must_use]
    pub fn with_quote(mut self, quote: impl Into<Vec<u8>>) -> Self {
        self.quote = Some(quote.into());
        self
    }

    /// Returns the message, without the quote.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn quote(&self) -> Option<&[u8]> {
        self.quote.as_deref()
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns whether a retry may succeed, as far as the fault itself says.
    pub(crate) fn retryable(&self) -> Option<bool> {
        if self.is_out_of_quota() {
            return Some(false);
        }
        // The model has erred, not the request: the next call of it may be better.
        let is_model_error = self.says(&["tool_use_failed"]);
        self.retryable.or(is_model_error.then_some(true))
    }

    /// Returns whether the account is out of quota: waiting does not help.
    fn is_out_of_quota(&self) -> bool {
        self.says(&["insufficient_quota", "billing_hard_limit_reached"])
    }

    /// Returns the kind by status and text, or by the text alone if there is no status.
    pub(crate) fn kind(&self, status: Option<StatusCode>) -> ErrorKind {
        if let Some(kind) = self.kind {
            return kind;
        }
        let code = status
            .map(|status| status.as_u16())
            .or(self.number)
            .unwrap_or(0);
        match code {
            401 | 403 => ErrorKind::Auth,
            404 => ErrorKind::NotFound,
            408 | 504 => ErrorKind::Timeout,
            429 => ErrorKind::RateLimited,
            503 | 529 => ErrorKind::Overloaded,
            // Redirects are not followed: the base URL is wrong.
            300..400 => ErrorKind::NotFound,
            _ if self.is_too_long(code) => ErrorKind::ContextLength,
            500.. => ErrorKind::Provider,
            // Groq names its rate limit for a request that alone exceeds it: waiting does not help.
            413 => ErrorKind::InvalidRequest,
            400..500 if self.says(&["rate_limit_exceeded"]) => ErrorKind::RateLimited,
            400..500 if self.says(&["model_not_found", "invalid_model"]) => ErrorKind::NotFound,
            // xAI reports a wrong key as an invalid argument.
            400 if says_wrong_key(&self.message) => ErrorKind::Auth,
            400..500 => ErrorKind::InvalidRequest,
            _ => self.kind_of_words(),
        }
    }

    fn is_too_long(&self, code: u16) -> bool {
        if self.words.iter().any(|word| says_too_long(word)) {
            return true;
        }
        // The message of a server that failed may name a limit that is not the cause.
        code < 500 && says_too_long(&self.message.to_ascii_lowercase())
    }

    fn kind_of_words(&self) -> ErrorKind {
        let table: [(&[&str], ErrorKind); 6] = [
            (
                &["rate_limit", "quota", "too_many_requests", "billing"],
                ErrorKind::RateLimited,
            ),
            (
                &["auth", "permission", "api_key", "forbidden"],
                ErrorKind::Auth,
            ),
            (
                &["overloaded", "unavailable", "capacity"],
                ErrorKind::Overloaded,
            ),
            (&["timeout", "timed_out", "deadline"], ErrorKind::Timeout),
            (&["not_found"], ErrorKind::NotFound),
            (
                &["invalid", "bad_request", "badrequest", "unsupported"],
                ErrorKind::InvalidRequest,
            ),
        ];
        // The first that matches counts, so the more certain words come first.
        let found = table.into_iter().find(|(words, _)| self.says(words));
        found.map_or(ErrorKind::Provider, |(_, kind)| kind)
    }

    fn says(&self, parts: &[&str]) -> bool {
        self.words
            .iter()
            .any(|word| parts.iter().any(|part| word.contains(part)))
    }
}

/// Returns the reason of the server behind a gateway, and the server's name, as OpenRouter reports
/// them.
fn upstream(metadata: &Value) -> Option<String> {
    let reason = match &metadata["raw"] {
        Value::Null => return None,
        // The body of the server behind, which may be JSON or not.
        Value::String(body) => match Fault::from_json(body.as_bytes()) {
            Some(fault) => fault.message.into_owned(),
            None => body.clone(),
        },
        body => match Fault::read(body) {
            Some(fault) => fault.message.into_owned(),
            None => body.to_string(),
        },
    };
    Some(match metadata["provider_name"].as_str() {
        Some(name) => format!("{name}: {reason}"),
        None => reason,
    })
}

fn says_too_long(text: &str) -> bool {
    TOO_LONG.iter().any(|words| text.contains(words))
}

fn says_wrong_key(message: &str) -> bool {
    message
        .to_ascii_lowercase()
        .starts_with("incorrect api key")
}

/// Without the quote, which may contain secrets.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}
