use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use tower_agent::error::ErrorKind;

/// The reason why a response is not an answer: an error that the provider reports, in any of
/// the formats that servers use, or a response that violates the protocol.
///
/// It may contain secrets that a server repeats; [`HttpModel`](crate::HttpModel) hides them and
/// adds status, request id and rate limits.
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
    /// The first of its `code`, `type` and `status` that is text, as it was sent.
    code: Option<String>,
    /// All of them in lower case, and those of the server behind a gateway.
    words: Vec<String>,
    /// The HTTP status that its `code` or `status` repeats.
    number: Option<u16>,
}

/// Parts of the messages for a prompt that a filter blocked, from servers without a code for it.
const FILTERED: [&str; 6] = [
    "flagged as potentially violating",
    "content filtering policy",
    "content management policy",
    "content exists risk",
    "content violates usage guidelines",
    "your input was flagged",
];

/// Parts of the messages for an unknown model, from servers without a code for it.
const NO_SUCH_MODEL: [&str; 3] = ["is not a valid model", "model not found", "model not exist"];

/// Codes and parts of the messages for a prompt that is longer than the model's context.
const TOO_LONG: [&str; 21] = [
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
    "prompt too long",
    "prompt tokens too long",
    "prompt exceeds max length",
    "prompt 超长",
    // xAI.
    "maximum prompt length",
    // vLLM, of a prompt alone.
    "maximum model length",
    // Moonshot.
    "model token limit",
    // Amazon's Nova.
    "input tokens exceeded",
    // Doubao.
    "exceed max message tokens",
    "token limit exceeded",
    "tokens_limit_reached",
];

/// Words that stand in such messages together, in this order, with numbers between them.
const TOO_LONG_WORDS: [&[&str]; 10] = [
    // Google, and Copilot.
    &["token count", "exceeds the"],
    // Poolside, and TensorRT-LLM.
    &["input length", "exceed"],
    &["prompt length", "exceed"],
    &["prompt", "tokens", "longer than"],
    &["prompt", "too large for model"],
    // Qwen, of what the length must be.
    &["range of input length", "should be"],
    // Cohere.
    &["too many tokens", "prompt"],
    &["too many input tokens"],
    // Text Generation Inference, and Together.
    &["`inputs`", "must have less than", "token"],
    &["inputs` tokens", "must be <="],
];

/// Words of messages about how many tokens a key may use in a time, which a shorter prompt may not
/// mend and a wait does.
const PER_TIME: [&str; 4] = ["per minute", "per day", "rate limit", "please wait"];

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
            code: None,
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
        let upstream = upstream(&error["metadata"]);
        if let Some(upstream) = &upstream {
            message = format!("{message}: {}", upstream.message);
        }
        let mut fault = Self::new(message);
        for value in [
            &error["code"],
            &error["type"],
            &error["status"],
            &error["__type"],
            &around["code"],
        ] {
            match value {
                Value::String(word) => fault = fault.with_code(word),
                Value::Number(number) => {
                    let number = number.as_u64().and_then(status_number);
                    fault.number = fault.number.or(number);
                }
                _ => {}
            }
        }
        // Azure says there which of its filters it was.
        if let Some(word) = error["innererror"]["code"].as_str() {
            fault = fault.with_code(word);
        }
        fault
            .words
            .extend(upstream.into_iter().flat_map(|fault| fault.words));
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

    /// Adds a code, from which the kind follows. The first is the error's
    /// [`error_code`](tower_agent::message::Metadata::error_code).
    ///
    /// ```
    /// use tower_agent_providers::protocol::Fault;
    ///
    /// let fault = Fault::new("No such model.").with_code("model_not_found");
    /// assert_eq!(fault.code(), Some("model_not_found"));
    /// ```
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        if code.is_empty() {
            return self;
        }
        self.code.get_or_insert_with(|| code.to_owned());
        // Some servers send the HTTP status as text.
        match code.parse().ok().and_then(status_number) {
            Some(number) => self.number = self.number.or(Some(number)),
            None => self.words.push(code.to_ascii_lowercase()),
        }
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

    /// Returns the provider's own code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
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
        let is_model_error = self.says(&["tool_use_failed", "json_validate_failed"]);
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
        // These come with several statuses, so the words decide.
        if self.is_filtered(code) {
            return ErrorKind::ContentFilter;
        }
        if self.is_unknown_model(code) {
            return ErrorKind::NotFound;
        }
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
            // Bedrock's, for a model behind it that failed.
            424 => ErrorKind::Provider,
            // Groq names its rate limit for a request that alone exceeds it: waiting does not help.
            413 => ErrorKind::InvalidRequest,
            400..500 if self.says(&["rate_limit_exceeded"]) => ErrorKind::RateLimited,
            // xAI reports a wrong key as an invalid argument.
            400 if says_wrong_key(&self.message) => ErrorKind::Auth,
            400..500 => ErrorKind::InvalidRequest,
            _ => self.kind_of_words(),
        }
    }

    fn is_filtered(&self, code: u16) -> bool {
        let words = [
            "content_filter",
            "content_policy",
            "responsibleaipolicyviolation",
            "data_inspection_failed",
            "moderation",
        ];
        self.says(&words) || code < 500 && self.mentions(&FILTERED)
    }

    fn is_unknown_model(&self, code: u16) -> bool {
        self.says(&["model_not_found", "invalid_model"])
            || matches!(code, 0 | 400 | 422) && self.mentions(&NO_SUCH_MODEL)
    }

    fn is_too_long(&self, code: u16) -> bool {
        // The message of a server that failed may name a limit that is not the cause.
        self.says(&TOO_LONG)
            || code < 500
                && (self.mentions(&TOO_LONG) || self.mentions_in_order(&TOO_LONG_WORDS))
                && !self.mentions(&PER_TIME)
    }

    fn kind_of_words(&self) -> ErrorKind {
        let table: [(&[&str], ErrorKind); 6] = [
            (
                // The words of AWS are those of its exceptions, such as `throttlingException`.
                &[
                    "rate_limit",
                    "quota",
                    "too_many_requests",
                    "billing",
                    "throttling",
                ],
                ErrorKind::RateLimited,
            ),
            (
                &["auth", "permission", "api_key", "forbidden", "accessdenied"],
                ErrorKind::Auth,
            ),
            (
                &["overloaded", "unavailable", "capacity", "notready"],
                ErrorKind::Overloaded,
            ),
            (&["timeout", "timed_out", "deadline"], ErrorKind::Timeout),
            (&["not_found", "notfound"], ErrorKind::NotFound),
            (
                &[
                    "invalid",
                    "bad_request",
                    "badrequest",
                    "unsupported",
                    "validation",
                ],
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

    /// Returns whether all words of a list stand in the message, one after the other.
    fn mentions_in_order(&self, lists: &[&[&str]]) -> bool {
        let message = self.message.to_lowercase();
        lists.iter().any(|words| {
            let mut rest = Some(&*message);
            for word in *words {
                rest = rest.and_then(|rest| Some(rest.split_once(word)?.1));
            }
            rest.is_some()
        })
    }

    fn mentions(&self, phrases: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        phrases.iter().any(|phrase| message.contains(phrase))
    }
}

/// Returns the number if it can be an HTTP status: some servers have numbers of their own.
fn status_number(number: u64) -> Option<u16> {
    u16::try_from(number)
        .ok()
        .filter(|number| (100..600).contains(number))
}

/// Returns the fault of the server behind a gateway, with the server's name in its message, as
/// OpenRouter reports them.
fn upstream(metadata: &Value) -> Option<Fault> {
    let mut fault = match &metadata["raw"] {
        Value::Null => return None,
        // The body of the server behind, which may be JSON or not.
        Value::String(body) => Fault::reported(body),
        body => Fault::read(body).unwrap_or_else(|| Fault::new(body.to_string())),
    };
    if let Some(name) = metadata["provider_name"].as_str() {
        fault.message = format!("{name}: {}", fault.message).into();
    }
    Some(fault)
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
