use std::time::Duration;

use serde_json::Value;

use crate::protocol::Fault;
use tower_agent::error::ErrorKind;

/// Reads Google's error: `{"error": {"code", "status", "message", "details"}}`, or an array of it.
pub(super) fn read(body: &[u8]) -> Option<Fault> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let mut fault = Fault::read(&body)?;
    let error = &body.get(0).unwrap_or(&body)["error"];
    let details = error["details"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(wait) = details.iter().find_map(|detail| seconds(&detail["retryDelay"])) {
        fault = fault.with_retry_after(wait);
    }
    // Both come with the status 400 `INVALID_ARGUMENT`.
    if details.iter().any(|detail| detail["reason"] == "API_KEY_INVALID") {
        fault = fault.with_kind(ErrorKind::Auth);
    } else if fault.message().to_ascii_lowercase().contains("input token count") {
        fault = fault.with_kind(ErrorKind::ContextLength);
    }
    if details.iter().any(is_daily_quota) {
        fault = fault.with_retryable(false);
    }
    Some(fault)
}

/// Reads a duration such as `12s` or `0.5s`.
fn seconds(delay: &Value) -> Option<Duration> {
    let seconds = delay.as_str()?.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns whether a quota is used up until tomorrow, whatever delay is sent beside it.
fn is_daily_quota(detail: &Value) -> bool {
    let violations = detail["violations"].as_array().map_or(&[][..], Vec::as_slice);
    violations.iter().any(|it| it["quotaId"].as_str().is_some_and(|id| id.contains("PerDay")))
}
