use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::tokens::sum;
use crate::json::lenient::{
    count, exact_json_text, is_set, null_default, number, object, or_default, string,
};
use tower_agent::message;

/// A response, or one chunk of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GenerateContentResponse<'a> {
    #[serde(borrow, deserialize_with = "null_default")]
    pub(super) candidates: Vec<Candidate<'a>>,
    #[serde(deserialize_with = "object")]
    pub(super) prompt_feedback: Option<Map<String, Value>>,
    #[serde(deserialize_with = "object")]
    pub(super) usage_metadata: Option<UsageMetadata>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) response_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) model_version: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(deserialize_with = "number")]
    pub(super) index: Option<u64>,
    #[serde(borrow, deserialize_with = "null_default")]
    pub(super) content: CandidateContent<'a>,
    #[serde(deserialize_with = "or_default")]
    pub(super) finish_reason: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) finish_message: Option<String>,
    pub(super) citation_metadata: Option<Value>,
    pub(super) grounding_metadata: Option<Value>,
    pub(super) url_context_metadata: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(super) avg_logprobs: Option<f64>,
    #[serde(rename = "logprobsResult", deserialize_with = "is_set")]
    pub(super) has_logprobs: bool,
}

impl Candidate<'_> {
    /// Returns whether it is the one that becomes the message.
    pub(super) fn is_first(&self) -> bool {
        self.index.unwrap_or_default() == 0
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CandidateContent<'a> {
    /// As text: a part of an unknown kind is kept whole.
    #[serde(borrow, deserialize_with = "null_default")]
    pub(super) parts: Vec<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ReadPart<'a> {
    #[serde(borrow, deserialize_with = "string")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(deserialize_with = "or_default")]
    pub(super) thought: bool,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) thought_signature: Option<Cow<'a, str>>,
    // Boxes, as few parts have these: the others are moved with less.
    pub(super) function_call: Option<Box<FunctionCall>>,
    #[serde(deserialize_with = "object")]
    pub(super) inline_data: Option<Box<Blob>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FunctionCall {
    #[serde(deserialize_with = "or_default")]
    pub(super) id: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "exact_json_text")]
    pub(super) args: String,
    /// The arguments come in pieces, which happens only if it was asked for.
    #[serde(deserialize_with = "or_default")]
    pub(super) will_continue: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Blob {
    #[serde(deserialize_with = "or_default")]
    pub(super) mime_type: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) data: String,
}

/// Token counts so far. A field that a later chunk leaves out keeps its value.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    #[serde(deserialize_with = "count")]
    prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    thoughts_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    cached_content_token_count: Option<u64>,
}

impl UsageMetadata {
    /// Replaces the counts by later ones.
    pub(super) fn set(&mut self, later: Self) {
        let Self {
            prompt_token_count: prompt,
            candidates_token_count: candidates,
            thoughts_token_count: thoughts,
            tool_use_prompt_token_count: tool_use,
            cached_content_token_count: cached,
        } = self;
        for (count, later) in [
            (prompt, later.prompt_token_count),
            (candidates, later.candidates_token_count),
            (thoughts, later.thoughts_token_count),
            (tool_use, later.tool_use_prompt_token_count),
            (cached, later.cached_content_token_count),
        ] {
            // Chunks bring only some of the counts.
            *count = later.or(*count);
        }
    }

    /// Returns the usage in our terms: prompts of the provider's own tools are input, and thoughts,
    /// which the provider counts apart, are output.
    pub(super) fn total(&self) -> message::Usage {
        let input = sum(self.prompt_token_count, self.tool_use_prompt_token_count);
        let output = sum(self.candidates_token_count, self.thoughts_token_count);
        let mut usage = message::Usage::new(input, output);
        usage.cached_input_tokens = self.cached_content_token_count.unwrap_or_default();
        usage.reasoning_tokens = self.thoughts_token_count.unwrap_or_default();
        usage
    }
}
