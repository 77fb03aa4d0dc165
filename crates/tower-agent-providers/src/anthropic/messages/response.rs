use std::ops::Add;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json::lenient::{
    count, exact_json_text, object, object_or_default, optional_list, or_default, text,
};
use crate::protocol::Fault;
use tower_agent::message;

// Our own types: those of other clients reject what servers leave out.

/// One event of a streamed response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesEvent<'a> {
    pub(super) r#type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) index: Option<u64>,
    // Boxes, as few events have these: the others are moved with less.
    pub(super) message: Option<Box<MessagesResponse>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(deserialize_with = "object")]
    pub(super) usage: Option<Box<MessagesUsage>>,
    pub(super) error: Option<Value>,
}

/// A response, or the start of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesResponse {
    #[serde(deserialize_with = "or_default")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) model: Option<String>,
    #[serde(deserialize_with = "optional_list")]
    pub(super) content: Option<Vec<Box<RawValue>>>,
    #[serde(flatten)]
    pub(super) ending: Ending,
    #[serde(deserialize_with = "object_or_default")]
    pub(super) usage: MessagesUsage,
    pub(super) error: Option<Value>,
}

/// The end of a response: part of a plain one, or the delta of the last event but one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Ending {
    #[serde(deserialize_with = "or_default")]
    pub(super) stop_reason: Option<String>,
    pub(super) stop_details: Option<Value>,
    pub(super) container: Option<Value>,
}

/// A piece of a block.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BlockDelta {
    pub(super) r#type: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) text: String,
    #[serde(deserialize_with = "text")]
    pub(super) thinking: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) signature: String,
    #[serde(deserialize_with = "exact_json_text")]
    pub(super) partial_json: String,
    pub(super) citation: Option<Value>,
}

/// A block of text, of reasoning or of a tool call, or any other.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block {
    #[serde(deserialize_with = "or_default")]
    pub(super) r#type: String,
    #[serde(deserialize_with = "text")]
    pub(super) text: String,
    #[serde(deserialize_with = "text")]
    pub(super) thinking: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) id: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// The arguments as the server wrote them.
    pub(super) input: Option<Box<RawValue>>,
}

/// The counts of tokens so far. Each is absent if it has not changed.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    /// Said by servers of others.
    #[serde(deserialize_with = "count")]
    total_tokens: Option<u64>,
    /// The input counts what the cache had, as the count came before it.
    #[serde(skip)]
    has_cached_input: bool,
    #[serde(deserialize_with = "object_or_default")]
    cache_creation: CacheCreation,
    #[serde(deserialize_with = "object_or_default")]
    output_tokens_details: ThinkingDetails,
    #[serde(deserialize_with = "iterations")]
    iterations: Option<Iterations>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    #[serde(deserialize_with = "count")]
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ThinkingDetails {
    #[serde(deserialize_with = "count")]
    thinking_tokens: Option<u64>,
}

/// The sum of all calls of models that one answer took, such as a compaction before it.
#[derive(Clone, Copy, Debug, Default)]
struct Iterations(message::Usage);

/// Reads the list of iterations, and anything else as none.
fn iterations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Iterations>, D::Error> {
    let iterations: Option<Vec<MessagesUsage>> = or_default(deserializer)?;
    let counted = iterations.filter(|all| !all.is_empty());
    Ok(counted.map(|all| {
        let usages = all.into_iter().map(message::Usage::from);
        Iterations(usages.fold(message::Usage::default(), message::Usage::add))
    }))
}

impl MessagesUsage {
    /// Returns how many tokens the cache keeps for an hour, if that is said.
    pub(super) fn long_cache_write_tokens(&self) -> Option<u64> {
        let tokens = self.cache_creation.ephemeral_1h_input_tokens;
        // A mix of both is told apart; most servers write zeros where nothing was written.
        tokens.filter(|_| {
            self.cache_creation_input_tokens
                .is_some_and(|written| written > 0)
        })
    }

    /// Replaces the counts by later ones, which are cumulative.
    pub(super) fn update(&mut self, later: Self) {
        let details = later.output_tokens_details.thinking_tokens;
        let long = later.cache_creation.ephemeral_1h_input_tokens;
        self.iterations = later.iterations.or(self.iterations);
        let is_cache_new = self.cache_read_input_tokens.unwrap_or(0) == 0
            && later.cache_read_input_tokens.unwrap_or(0) > 0;
        // Some servers tell the whole prompt first, and at the end what of it the cache had.
        if later.input_tokens.is_some() {
            self.has_cached_input = false;
        } else if is_cache_new {
            self.has_cached_input = self.input_tokens >= later.cache_read_input_tokens;
        }
        for (count, later) in [
            (&mut self.input_tokens, later.input_tokens),
            (&mut self.output_tokens, later.output_tokens),
            (&mut self.total_tokens, later.total_tokens),
            (
                &mut self.cache_read_input_tokens,
                later.cache_read_input_tokens,
            ),
            (
                &mut self.cache_creation_input_tokens,
                later.cache_creation_input_tokens,
            ),
            (&mut self.output_tokens_details.thinking_tokens, details),
            (&mut self.cache_creation.ephemeral_1h_input_tokens, long),
        ] {
            *count = later.or(*count);
        }
    }
}

impl From<MessagesUsage> for message::Usage {
    fn from(usage: MessagesUsage) -> Self {
        let read = usage.cache_read_input_tokens.unwrap_or(0);
        let written = usage.cache_creation_input_tokens.unwrap_or(0);
        let mut ours = Self::new(
            usage.input_tokens.unwrap_or(0),
            usage.output_tokens.unwrap_or(0),
        );
        // The protocol counts cached tokens apart, which servers of others may not: then the prompt
        // was told before them, or the total is the sum without them.
        let is_total = usage.total_tokens == Some(ours.total()) && read <= ours.input_tokens;
        let is_whole = usage.has_cached_input || is_total;
        if !is_whole {
            ours.input_tokens = (ours.input_tokens)
                .saturating_add(read)
                .saturating_add(written);
        }
        ours.cached_input_tokens = read;
        ours.cache_write_tokens = written;
        ours.reasoning_tokens = usage.output_tokens_details.thinking_tokens.unwrap_or(0);
        // The other counts leave out some of the iterations, but never say more.
        let iterations = usage.iterations.unwrap_or_default().0;
        ours + (iterations - ours)
    }
}

/// Returns the fields of a block.
pub(super) fn fields(block: &RawValue) -> Map<String, Value> {
    serde_json::from_str(block.get()).unwrap_or_default()
}

/// Returns the fields of a block other than these. Those that are `null` say nothing.
pub(super) fn fields_beside(known: &[&str], block: &RawValue) -> Map<String, Value> {
    let mut fields = fields(block);
    fields.retain(|name, value| !value.is_null() && !known.contains(&&**name));
    fields
}

/// Reads an error; returns `None` if the body is none.
pub(super) fn fault(body: &[u8]) -> Option<Fault> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let fault = Fault::read(&body)?;
    // An empty account stays empty.
    let is_unpaid = body["error"]["type"] == "billing_error";
    Some(if is_unpaid {
        fault.with_retryable(false)
    } else {
        fault
    })
}
