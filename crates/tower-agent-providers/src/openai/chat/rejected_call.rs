use serde::Deserialize;
use serde_json::Value;

use super::response::ToolCallPiece;
use crate::json::lenient::exact_json_text;

/// A call that the model made and the server rejected, as Groq does if it does not match the tool's
/// schema.
#[derive(Deserialize)]
struct RejectedCall {
    name: String,
    #[serde(alias = "parameters", deserialize_with = "exact_json_text")]
    arguments: String,
}

/// Returns the calls in the body of an error, none if it is another error or they cannot be read.
pub(super) fn rejected_calls(body: &Value) -> Vec<ToolCallPiece<'static>> {
    let error = body.get("error").unwrap_or(body);
    let text = error["failed_generation"].as_str().unwrap_or_default();
    if error["code"] != "tool_use_failed" {
        return Vec::new();
    }
    let calls = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<RejectedCall>>(text)
    } else {
        serde_json::from_str::<RejectedCall>(text).map(|call| vec![call])
    };
    let calls = calls.unwrap_or_default().into_iter();
    calls
        .map(|call| ToolCallPiece::new(call.name, call.arguments))
        .collect()
}
