use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body_util::LengthLimitError;

use super::config::Config;
use super::connection;
use crate::protocol::{Decoder, Fault, Protocol};
use tower_agent::error::{BoxError, Error, ErrorKind};
use tower_agent::message::{Metadata, whole_characters};

/// Data from the head of a response, used in the response and in errors.
#[derive(Debug)]
pub(super) struct ResponseHead {
    metadata: Metadata,
    status: StatusCode,
    headers: HeaderMap,
    config: Arc<Config>,
}

/// The headers that contain the id of the request.
static REQUEST_IDS: [HeaderName; 3] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-amzn-requestid"),
];
/// The header in which AWS names the exception that the body describes.
static ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The prefixes of the headers that contain rate limits.
const RATE_LIMITS: [&str; 2] = ["x-ratelimit-", "anthropic-ratelimit-"];

/// The limit of a response with an error, in bytes.
pub(super) const MAX_ERROR: usize = 1 << 20;

/// Maximum length of the part of a non-JSON body that goes into an error's message.
const SNIPPET: usize = 200;

impl ResponseHead {
    pub(super) fn new(status: StatusCode, headers: HeaderMap, config: Arc<Config>) -> Self {
        let secrets = &config.secrets;
        let mut metadata = Metadata::default();
        metadata.status = Some(status.as_u16());
        metadata.provider = config.provider.map(Into::into);
        // A server can put anything into its headers, also the key that it received.
        let request_id = REQUEST_IDS.iter().find_map(|name| text(&headers, name));
        metadata.request_id = request_id.map(|id| secrets.hide(id));
        for (name, value) in &headers {
            if RATE_LIMITS
                .iter()
                .any(|prefix| name.as_str().starts_with(prefix))
                && let Ok(value) = value.to_str()
            {
                let limits = &mut metadata.rate_limits;
                limits.insert(name.as_str().to_owned(), secrets.hide(value));
            }
        }
        Self {
            metadata,
            status,
            headers,
            config,
        }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.clone()
    }

    pub(super) fn stated_usage(&self) -> &'static [&'static str] {
        self.config.stated_usage
    }

    /// Returns the metadata with what the decoder knows; a request id in the headers takes
    /// precedence.
    pub(super) fn into_metadata(self, decoder: &impl Decoder) -> Metadata {
        completed(self.metadata, decoder, &self.config)
    }

    /// Returns the error for a response with an unsuccessful status.
    pub(super) fn refused(&self, protocol: &impl Protocol, body: &[u8]) -> Error {
        let mended = || whole_characters(str::from_utf8(body).ok()?);
        let fault = protocol.fault(body);
        let fault = fault.or_else(|| protocol.fault(mended()?.as_bytes()));
        let fault = fault.unwrap_or_else(|| Fault::new(self.reason()).with_quote(body));
        let fault = match text(&self.headers, &ERROR_TYPE) {
            // A URL may follow the name.
            Some(name) => fault.with_code(name.split(':').next().unwrap_or_default()),
            None => fault,
        };
        self.error(&fault, Some(self.status), self.metadata.clone())
    }

    /// Returns the metadata that the head says.
    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the error for a fault in the response to another call than one of the model.
    pub(super) fn fault_beside_model(&self, fault: &Fault) -> Error {
        self.error(fault, None, self.metadata.clone())
    }

    /// Returns the error for a fault in a response with a successful status.
    pub(super) fn fault(&self, fault: &Fault, decoder: &impl Decoder) -> Error {
        let metadata = completed(self.metadata.clone(), decoder, &self.config);
        self.error(fault, None, metadata)
    }

    /// Returns the error for a body that broke off.
    pub(super) fn broke(&self, error: BoxError) -> Error {
        if error.is::<LengthLimitError>() {
            return self.too_long("the response", self.config.max_response);
        }
        let error = connection::broke(error);
        // An error of a layer below may come from a response of its own, and knows its status.
        match error.metadata().status {
            Some(_) => error,
            None => error.with_metadata(self.metadata.clone()),
        }
    }

    /// Returns the limit of a line of a stream: a single one must not take all that a response may
    /// have.
    pub(super) fn max_line(&self) -> usize {
        self.config.max_response / 2
    }

    /// Returns the error for a response that is larger than its limit.
    pub(super) fn too_long(&self, what: &str, max: usize) -> Error {
        let message = format!(
            "{what} is larger than {max} bytes: raise `max_response` on the builder if it may be"
        );
        let error = self.error(&Fault::protocol(message), None, self.metadata.clone());
        // It would be read, and paid for, up to the limit again.
        error.with_retryable(false)
    }

    fn reason(&self) -> String {
        match self.status.canonical_reason() {
            Some(reason) => format!(
                "the server responded with {} {reason}",
                self.status.as_u16()
            ),
            None => format!("the server responded with {}", self.status.as_u16()),
        }
    }

    fn error(&self, fault: &Fault, status: Option<StatusCode>, mut metadata: Metadata) -> Error {
        let kind = fault.kind(status);
        let mut message = self.config.secrets.hide(fault.message());
        let quote = fault
            .quote()
            .map(|quote| self.snippet(quote))
            .unwrap_or_default();
        if !quote.is_empty() {
            message.push_str(": ");
            message.push_str(&quote);
        }
        // The most common mistake of a first call is a missing key or the wrong one.
        if kind == ErrorKind::Auth {
            message.push_str(&self.config.key_hint());
        }
        metadata.error_code = fault.code().map(|code| self.config.secrets.hide(code));
        let mut error = Error::new(kind, message).with_metadata(metadata);
        // The head cannot know how the body would end.
        let should_retry = should_retry(&self.headers).filter(|_| kind != ErrorKind::Protocol);
        if let Some(retryable) = fault.retryable().or(should_retry) {
            error = error.with_retryable(retryable);
        }
        // The headers may come from a proxy in front of the provider, which knows better when it
        // will let the call through.
        match retry_after(&self.headers).or(fault.retry_after()) {
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
}

fn completed(mut metadata: Metadata, decoder: &impl Decoder, config: &Config) -> Metadata {
    if let Some(id) = decoder.id() {
        let id = config.secrets.hide(id);
        // The header's id is the one that a provider's support asks for.
        metadata.request_id.get_or_insert_with(|| id.clone());
        metadata.response_id = Some(id);
    }
    metadata.model = decoder.model().map(|model| config.secrets.hide(model));
    decoder.describe(&mut metadata);
    metadata
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers
        .get(name)?
        .to_str()
        .ok()
        .filter(|text| !text.is_empty())
}

fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match text(headers, &SHOULD_RETRY)? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Returns the wait that the server asks for: in milliseconds, in seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(Ok(millis)) = text(headers, &RETRY_AFTER_MS).map(|t| t.trim().parse::<f64>()) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let text = text(headers, &RETRY_AFTER)?.trim();
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => {
            // A date that has passed is a wait of zero.
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}
