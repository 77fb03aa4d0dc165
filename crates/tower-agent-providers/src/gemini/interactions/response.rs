use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::tokens::sum;
use crate::json::lenient::{count, exact_json_text, object, optional_list, or_default};
use tower_agent::message;

/// An interaction: a response, or what an event of a stream says about it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Interaction<'a> {
    #[serde(deserialize_with = "or_default")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) model: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Option<String>,
    /// As text: a step of an unknown kind is kept whole.
    #[serde(borrow, deserialize_with = "optional_list")]
    pub(super) steps: Option<Vec<&'a RawValue>>,
    #[serde(deserialize_with = "object")]
    pub(super) usage: Option<InteractionUsage>,
    #[serde(deserialize_with = "or_default")]
    pub(super) errors: Vec<Value>,
    pub(super) error: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(super) continuation_token: Option<String>,
}

/// An event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InteractionEvent<'a> {
    #[serde(rename = "event_type", deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) step: Option<&'a RawValue>,
    #[serde(deserialize_with = "object")]
    pub(super) delta: Option<StepDelta>,
    #[serde(borrow, deserialize_with = "object")]
    pub(super) interaction: Option<Interaction<'a>>,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) usage: Option<InteractionUsage>,
    pub(super) error: Option<Value>,
}

/// An addition to a step.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StepDelta {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) text: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) signature: String,
    /// Of a call, a piece of the text.
    #[serde(deserialize_with = "exact_json_text")]
    pub(super) arguments: String,
    pub(super) content: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: Vec<Value>,
}

/// Token counts so far. A field that a later event leaves out keeps its value.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InteractionUsage {
    #[serde(deserialize_with = "count")]
    total_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_output_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_thought_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_tool_use_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_cached_tokens: Option<u64>,
}

impl InteractionUsage {
    /// Replaces the counts by later ones.
    pub(super) fn set(&mut self, later: Self) {
        let Self {
            total_input_tokens: input,
            total_output_tokens: output,
            total_thought_tokens: thoughts,
            total_tool_use_tokens: tool_use,
            total_cached_tokens: cached,
        } = self;
        for (count, later) in [
            (input, later.total_input_tokens),
            (output, later.total_output_tokens),
            (thoughts, later.total_thought_tokens),
            (tool_use, later.total_tool_use_tokens),
            (cached, later.total_cached_tokens),
        ] {
            // Events bring only some of the counts.
            *count = later.or(*count);
        }
    }

    /// Returns the usage in our terms: prompts of the provider's own tools are input, and thoughts,
    /// which the provider counts apart, are output.
    pub(super) fn total(&self) -> message::Usage {
        let input = sum(self.total_input_tokens, self.total_tool_use_tokens);
        let output = sum(self.total_output_tokens, self.total_thought_tokens);
        let mut usage = message::Usage::new(input, output);
        usage.cached_input_tokens = self.total_cached_tokens.unwrap_or_default();
        usage.reasoning_tokens = self.total_thought_tokens.unwrap_or_default();
        usage
    }
}
