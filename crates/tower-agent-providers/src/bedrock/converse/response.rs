use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json::lenient::{
    count, exact_json_text, object, object_or_default, optional_list, or_default, text,
};
use tower_agent::message;

// Our own types: those of AWS's client reject what servers leave out.

/// A response that is not streamed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ConverseResponse {
    #[serde(deserialize_with = "object_or_default")]
    pub(super) output: ConverseOutput,
    #[serde(deserialize_with = "or_default")]
    pub(super) stop_reason: Option<String>,
    #[serde(deserialize_with = "object_or_default")]
    pub(super) usage: ConverseUsage,
    pub(super) additional_model_response_fields: Option<Value>,
    pub(super) trace: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConverseOutput {
    #[serde(deserialize_with = "object")]
    pub(super) message: Option<ConverseMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConverseMessage {
    #[serde(deserialize_with = "optional_list")]
    pub(super) content: Option<Vec<Box<RawValue>>>,
}

/// A block. Its only field has the name of its kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContentBlock {
    #[serde(deserialize_with = "or_default")]
    pub(super) text: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) tool_use: Option<ToolUse>,
    #[serde(deserialize_with = "object")]
    pub(super) reasoning_content: Option<ReasoningContent>,
    #[serde(deserialize_with = "object")]
    pub(super) image: Option<ImageBlock>,
    #[serde(deserialize_with = "object")]
    pub(super) citations_content: Option<CitationsContent>,
}

/// A tool call, or the start of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ToolUse {
    #[serde(deserialize_with = "or_default")]
    pub(super) tool_use_id: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// The arguments as the server wrote them.
    pub(super) input: Option<Box<RawValue>>,
    /// Set for a call that the server itself has run.
    #[serde(deserialize_with = "or_default")]
    pub(super) r#type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ReasoningContent {
    #[serde(deserialize_with = "object")]
    pub(super) reasoning_text: Option<ReasoningText>,
    #[serde(deserialize_with = "or_default")]
    pub(super) redacted_content: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReasoningText {
    #[serde(deserialize_with = "text")]
    pub(super) text: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) signature: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ImageBlock {
    #[serde(deserialize_with = "or_default")]
    pub(super) format: String,
    #[serde(deserialize_with = "object_or_default")]
    pub(super) source: BlobSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BlobSource {
    #[serde(deserialize_with = "or_default")]
    pub(super) bytes: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CitationsContent {
    #[serde(deserialize_with = "text")]
    pub(super) content: String,
    pub(super) citations: Option<Value>,
}

/// The start of a block in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct BlockStartEvent<'a> {
    #[serde(borrow)]
    pub(super) start: Option<&'a RawValue>,
    #[serde(deserialize_with = "or_default")]
    pub(super) content_block_index: Option<u64>,
}

/// A piece of a block in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct BlockDeltaEvent<'a> {
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(deserialize_with = "or_default")]
    pub(super) content_block_index: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ConverseBlockDelta {
    #[serde(deserialize_with = "or_default")]
    pub(super) text: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) tool_use: Option<ToolUseDelta>,
    #[serde(deserialize_with = "object")]
    pub(super) reasoning_content: Option<ReasoningDelta>,
    pub(super) citation: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolUseDelta {
    #[serde(deserialize_with = "exact_json_text")]
    pub(super) input: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ReasoningDelta {
    #[serde(deserialize_with = "text")]
    pub(super) text: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) signature: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) redacted_content: Option<String>,
}

/// The end of the message in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MessageStopEvent {
    #[serde(deserialize_with = "or_default")]
    pub(super) stop_reason: Option<String>,
    pub(super) additional_model_response_fields: Option<Value>,
}

/// The last event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetadataEvent {
    #[serde(deserialize_with = "object_or_default")]
    pub(super) usage: ConverseUsage,
    pub(super) trace: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ConverseUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: u64,
    #[serde(deserialize_with = "count")]
    output_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_write_input_tokens: u64,
    #[serde(deserialize_with = "count")]
    total_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    cache_details: Vec<CacheDetail>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CacheDetail {
    #[serde(deserialize_with = "or_default")]
    ttl: String,
    #[serde(deserialize_with = "count")]
    input_tokens: u64,
}

impl ConverseUsage {
    /// Returns how many tokens the cache keeps for an hour, if that is said.
    pub(super) fn long_cache_write_tokens(&self) -> Option<u64> {
        if self.cache_write_input_tokens == 0 || self.cache_details.is_empty() {
            return None;
        }
        let long = self.cache_details.iter().filter(|part| part.ttl == "1h");
        Some(long.fold(0, |sum, part| part.input_tokens.saturating_add(sum)))
    }
}

impl From<&ConverseUsage> for message::Usage {
    fn from(usage: &ConverseUsage) -> Self {
        let read = usage.cache_read_input_tokens;
        let written = usage.cache_write_input_tokens;
        let mut ours = Self::new(usage.input_tokens, usage.output_tokens);
        // The protocol counts cached tokens apart, unless the total is the sum without them.
        if usage.total_tokens != ours.total() || read > ours.input_tokens {
            ours.input_tokens = (ours.input_tokens)
                .saturating_add(read)
                .saturating_add(written);
        }
        ours.cached_input_tokens = read;
        ours.cache_write_tokens = written;
        ours
    }
}

/// Returns the fields of a block.
pub(super) fn fields(block: &RawValue) -> Map<String, Value> {
    serde_json::from_str(block.get()).unwrap_or_default()
}
