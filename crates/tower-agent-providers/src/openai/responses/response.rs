use serde::Deserialize;
use serde_json::{Map, Value};

use crate::json::lenient::{count, null_default, object, object_or_default, or_default};
use tower_agent::message;

/// A response, or the snapshot of one in an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    #[serde(deserialize_with = "or_default")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) model: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Option<String>,
    #[serde(deserialize_with = "null_default")]
    pub(super) output: Option<Vec<Map<String, Value>>>,
    pub(super) error: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(super) incomplete_details: IncompleteDetails,
    #[serde(deserialize_with = "object")]
    usage: Option<ResponseUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails {
    #[serde(deserialize_with = "or_default")]
    pub(super) reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: u64,
    #[serde(deserialize_with = "count")]
    output_tokens: u64,
    #[serde(deserialize_with = "object_or_default")]
    input_tokens_details: InputDetails,
    #[serde(deserialize_with = "object_or_default")]
    output_tokens_details: OutputDetails,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    // A part of the output, which is counted there: a server that does not know it may write -1.
    #[serde(deserialize_with = "or_default")]
    reasoning_tokens: u64,
}

impl Response {
    /// Returns the token usage, if it is included.
    pub(super) fn usage(&self) -> Option<message::Usage> {
        let usage = self.usage?;
        let mut ours = message::Usage::new(usage.input_tokens, usage.output_tokens);
        ours.cached_input_tokens = usage.input_tokens_details.cached_tokens;
        ours.cache_write_tokens = usage.input_tokens_details.cache_write_tokens;
        ours.reasoning_tokens = usage.output_tokens_details.reasoning_tokens;
        Some(ours)
    }
}

/// An event of a streamed response: its type and the fields of all types that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseEvent {
    #[serde(deserialize_with = "or_default", rename = "type")]
    pub(super) kind: String,
    #[serde(deserialize_with = "null_default")]
    pub(super) response: Response,
    #[serde(deserialize_with = "or_default")]
    pub(super) output_index: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub(super) item_id: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) content_index: u64,
    #[serde(deserialize_with = "or_default")]
    pub(super) summary_index: u64,
    #[serde(deserialize_with = "or_default")]
    pub(super) delta: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) item: Map<String, Value>,
}
