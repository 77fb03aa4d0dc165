use std::time::Duration;

use serde_json::Value;

use crate::protocol::Fault;
use crate::protocol::ending::{Promise, promise};
use tower_agent::error::ErrorKind;

/// Reads Google's error: `{"error": {"code", "status", "message", "details"}}`, or an array of it.
/// Interactions has a word as `code`.
pub(super) fn read(body: &[u8]) -> Option<Fault> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let fault = Fault::read(&body)?;
    Some(with_details(fault, &body.get(0).unwrap_or(&body)["error"]))
}

/// Reads the object of an error.
pub(super) fn of(error: &Value) -> Fault {
    with_details(Fault::of(error, &Value::Null), error)
}

fn with_details(mut fault: Fault, error: &Value) -> Fault {
    let details = error["details"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(wait) = details
        .iter()
        .find_map(|detail| seconds(&detail["retryDelay"]))
    {
        fault = fault.with_retry_after(wait);
    }
    let code = error["code"].as_str().unwrap_or_default();
    // Both come with the status 400 `INVALID_ARGUMENT`.
    if details
        .iter()
        .any(|detail| detail["reason"] == "API_KEY_INVALID")
    {
        fault = fault.with_kind(ErrorKind::Auth);
    } else if is_filter(code) {
        fault = fault.with_kind(ErrorKind::ContentFilter);
    } else if let Some(kind) = failure(code) {
        fault = fault.with_kind(kind);
    }
    // Last: it overrules the wait, with which a retry would be tried in vain all day.
    if details.iter().any(is_daily_quota) || code == "quota_exceeded" {
        fault = fault.with_retryable(false);
    }
    fault
}

/// Returns the kind of an answer that failed: there is none, or only a part of one. The word is a
/// finish reason or, in lower case, the code of an error.
pub(super) fn failure(word: &str) -> Option<ErrorKind> {
    match promise(word) {
        Promise::Broken(kind) => Some(kind),
        _ => None,
    }
}

/// Returns whether a word, as in [`failure`], says that the answer was blocked.
pub(super) fn is_filter(word: &str) -> bool {
    promise(word) == Promise::Filtered
}

/// Reads a duration such as `12s` or `0.5s`.
fn seconds(delay: &Value) -> Option<Duration> {
    let seconds = delay.as_str()?.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns whether a quota is used up until tomorrow, whatever delay is sent beside it.
fn is_daily_quota(detail: &Value) -> bool {
    let violations = detail["violations"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    violations.iter().any(|violation| {
        violation["quotaId"]
            .as_str()
            .is_some_and(|id| id.contains("PerDay"))
    })
}
