use http::StatusCode;
use serde_json::Value;

use tower_agent::error::ErrorKind;

/// An error reported by a server, in any of the formats that servers use.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    /// Its `code` and `type`, if they are text.
    words: Vec<String>,
    /// Its `code`, if it is a number.
    number: Option<u16>,
}

const TOO_LONG: [&str; 9] = [
    "context length",
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
    pub(super) fn new(message: String) -> Self {
        Self { message, words: Vec::new(), number: None }
    }

    /// Reads `{"error": {..}}`, `{"error": ".."}`, `{"message": ".."}`, `{"detail": ..}` and the
    /// same in an array.
    pub(super) fn read(body: &Value) -> Option<Self> {
        let body = body.get(0).unwrap_or(body);
        match body.get("error") {
            Some(Value::Null) | None => {}
            Some(error) => return Some(Self::of(error, body)),
        }
        let says = ["message", "detail"].iter().any(|key| !body[*key].is_null());
        says.then(|| Self::of(body, body))
    }

    /// Reads the error itself and the object around it.
    pub(super) fn of(error: &Value, around: &Value) -> Self {
        let said = ["message", "detail", "msg"].map(|key| &error[key]).into_iter();
        let said = said.chain([error, &around["message"]]).find_map(Value::as_str);
        let message = match said {
            Some(text) => text.to_owned(),
            None if !error["detail"].is_null() => error["detail"].to_string(),
            None => error.to_string(),
        };
        let mut fault = Self::new(message);
        for value in [&error["code"], &error["type"], &error["status"], &around["code"]] {
            match value {
                Value::String(word) => match word.parse() {
                    Ok(number) => fault.number = fault.number.or(Some(number)),
                    Err(_) => fault.words.push(word.to_ascii_lowercase()),
                },
                Value::Number(number) => {
                    let number = number.as_u64().and_then(|number| u16::try_from(number).ok());
                    fault.number = fault.number.or(number);
                }
                _ => {}
            }
        }
        fault
    }

    /// Returns whether the account is out of quota: waiting does not help.
    pub(super) fn is_out_of_quota(&self) -> bool {
        self.says(&["insufficient_quota", "billing_hard_limit_reached"])
    }

    /// Returns the kind by status and text, or by the text alone if there is no status.
    pub(super) fn kind(&self, status: Option<StatusCode>) -> ErrorKind {
        let code = status.map(|status| status.as_u16()).or(self.number).unwrap_or(0);
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
            400..500 if self.says(&["rate_limit_exceeded"]) => ErrorKind::RateLimited,
            400..500 => ErrorKind::InvalidRequest,
            _ => self.kind_of_words(),
        }
    }

    fn is_too_long(&self, code: u16) -> bool {
        let is_in = |text: &str| TOO_LONG.iter().any(|words| text.contains(words));
        self.words.iter().any(|word| is_in(word))
            || code < 500 && is_in(&self.message.to_ascii_lowercase())
    }

    fn kind_of_words(&self) -> ErrorKind {
        let table: [(&[&str], ErrorKind); 6] = [
            (&["rate_limit", "quota", "too_many_requests", "billing"], ErrorKind::RateLimited),
            (&["auth", "permission", "api_key", "forbidden"], ErrorKind::Auth),
            (&["overloaded", "unavailable", "capacity"], ErrorKind::Overloaded),
            (&["timeout", "timed_out", "deadline"], ErrorKind::Timeout),
            (&["not_found"], ErrorKind::NotFound),
            (&["invalid", "bad_request", "badrequest", "unsupported"], ErrorKind::InvalidRequest),
        ];
        let found = table.into_iter().find(|(words, _)| self.says(words));
        found.map_or(ErrorKind::Provider, |(_, kind)| kind)
    }

    fn says(&self, parts: &[&str]) -> bool {
        self.words.iter().any(|word| parts.iter().any(|part| word.contains(part)))
    }
}
