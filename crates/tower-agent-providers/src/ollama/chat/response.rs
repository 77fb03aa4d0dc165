use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::json::lenient::{
    count, error, exact_json_text, list, null_default, or_default, string, text,
};

/// A response, or one line of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OllamaResponse<'a> {
    #[serde(borrow, deserialize_with = "string")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(deserialize_with = "null_default")]
    pub(super) message: OllamaMessage,
    #[serde(deserialize_with = "or_default")]
    pub(super) done: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(super) done_reason: Option<String>,
    #[serde(deserialize_with = "count")]
    pub(super) prompt_eval_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    pub(super) eval_count: Option<u64>,
    #[serde(deserialize_with = "error")]
    pub(super) error: Option<Value>,
}

/// The model's message, or its next piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OllamaMessage {
    #[serde(deserialize_with = "text")]
    pub(super) content: String,
    #[serde(deserialize_with = "text")]
    pub(super) thinking: String,
    #[serde(deserialize_with = "list")]
    pub(super) tool_calls: Vec<OllamaToolCall>,
}

/// A whole tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OllamaToolCall {
    #[serde(deserialize_with = "or_default")]
    pub(super) id: String,
    #[serde(deserialize_with = "null_default")]
    pub(super) function: OllamaCalledFunction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OllamaCalledFunction {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "exact_json_text")]
    pub(super) arguments: String,
}
