use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::tokens::sum;
use crate::json::lenient::{count, exact_json_text, list, object, or_default, string};
use crate::json::{Choice, Choices, Fill, Number, Presence, ReadFields, Word};
use tower_agent::message;

/// A response, or one chunk of a streamed one. It is read in place, as a response may be hundreds
/// of chunks.
#[derive(Debug, Default)]
pub(super) struct GenerateContentResponse<'a> {
    pub(super) candidates: Choices<Candidate<'a>>,
    pub(super) prompt_feedback: Option<Map<String, Value>>,
    pub(super) usage_metadata: Option<UsageMetadata>,
    pub(super) response_id: Option<Cow<'a, str>>,
    pub(super) model_version: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
}

impl<'de> ReadFields<'de> for GenerateContentResponse<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "candidates" => map.next_value_seed(&mut self.candidates)?,
            "promptFeedback" => {
                self.prompt_feedback = match map.next_value()? {
                    Value::Object(feedback) => Some(feedback),
                    _ => None,
                }
            }
            "usageMetadata" | "usage_metadata" => {
                self.usage_metadata = map.next_value::<UsageMetadataField>()?.usage
            }
            "responseId" => self.response_id = map.next_value::<Word<'_>>()?.word,
            "modelVersion" => self.model_version = map.next_value::<Word<'_>>()?.word,
            "error" => self.error = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct UsageMetadataField {
    #[serde(deserialize_with = "object")]
    usage: Option<UsageMetadata>,
}

#[derive(Debug, Default)]
pub(super) struct Candidate<'a> {
    index: u64,
    pub(super) content: CandidateContent<'a>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) finish_message: Option<Cow<'a, str>>,
    pub(super) citation_metadata: Option<Value>,
    pub(super) grounding_metadata: Option<Value>,
    pub(super) url_context_metadata: Option<Value>,
    pub(super) avg_logprobs: Option<f64>,
    pub(super) has_logprobs: bool,
}

impl Choice for Candidate<'_> {
    fn index(&self) -> u64 {
        self.index
    }
}

impl<'de> ReadFields<'de> for Candidate<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => self.index = map.next_value::<Number>()?.number.unwrap_or_default(),
            "content" => drop(map.next_value_seed(Fill(&mut self.content))?),
            "finishReason" => self.finish_reason = map.next_value::<Word<'_>>()?.word,
            "finishMessage" => self.finish_message = map.next_value::<Word<'_>>()?.word,
            "citationMetadata" => self.citation_metadata = map.next_value()?,
            "groundingMetadata" => self.grounding_metadata = map.next_value()?,
            "urlContextMetadata" => self.url_context_metadata = map.next_value()?,
            "avgLogprobs" => self.avg_logprobs = map.next_value::<Value>()?.as_f64(),
            "logprobsResult" => self.has_logprobs = map.next_value::<Presence>()?.is_set,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct CandidateContent<'a> {
    /// As text: a part of an unknown kind is kept whole.
    pub(super) parts: Vec<&'a RawValue>,
}

impl<'de> ReadFields<'de> for CandidateContent<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "parts" => {
                self.parts = map.next_value::<PartsField<'_>>()?.parts;
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct PartsField<'a> {
    #[serde(borrow, deserialize_with = "list")]
    parts: Vec<&'a RawValue>,
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

/// Token counts so far. A field that a later chunk leaves out keeps its value. Some servers have
/// the names of Google's own libraries.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    #[serde(alias = "prompt_token_count", deserialize_with = "count")]
    prompt_token_count: Option<u64>,
    #[serde(alias = "candidates_token_count", deserialize_with = "count")]
    candidates_token_count: Option<u64>,
    #[serde(alias = "thoughts_token_count", deserialize_with = "count")]
    thoughts_token_count: Option<u64>,
    #[serde(alias = "tool_use_prompt_token_count", deserialize_with = "count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(alias = "cached_content_token_count", deserialize_with = "count")]
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
