use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::json::lenient::{count, json_text, null_default, object, or_default, string, text};
use tower_agent::message;

// Our own types: those of async-openai reject what many servers send.

/// A response, or one chunk of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatCompletion<'a> {
    #[serde(borrow, deserialize_with = "string")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "choices", deserialize_with = "first_choice")]
    pub(super) choice: Option<CompletionChoice<'a>>,
    #[serde(deserialize_with = "object")]
    usage: Option<CompletionUsage>,
    #[serde(deserialize_with = "object")]
    x_groq: Option<Groq>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) object: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CompletionChoice<'a> {
    #[serde(deserialize_with = "or_default")]
    pub(super) index: u64,
    /// Set in a plain response.
    #[serde(borrow)]
    pub(super) message: Option<ChatMessage<'a>>,
    /// Set in a chunk of a streamed response.
    #[serde(borrow)]
    pub(super) delta: Option<ChatMessage<'a>>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
}

/// The model's message, or its next piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatMessage<'a> {
    #[serde(deserialize_with = "text")]
    pub(super) content: String,
    #[serde(deserialize_with = "text")]
    pub(super) reasoning_content: String,
    #[serde(deserialize_with = "text")]
    pub(super) reasoning: String,
    #[serde(deserialize_with = "text")]
    pub(super) refusal: String,
    #[serde(borrow, deserialize_with = "null_default")]
    pub(super) tool_calls: Vec<ToolCallPiece<'a>>,
}

/// A tool call, or a piece of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCallPiece<'a> {
    #[serde(deserialize_with = "or_default")]
    pub(super) index: Option<u64>,
    #[serde(borrow, deserialize_with = "string")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "null_default")]
    function: FunctionPiece<'a>,
    #[serde(deserialize_with = "or_default")]
    pub(super) extra_content: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FunctionPiece<'a> {
    #[serde(borrow, deserialize_with = "string")]
    name: Option<Cow<'a, str>>,
    #[serde(deserialize_with = "json_text")]
    arguments: String,
}

/// Where Groq puts the usage of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Groq {
    #[serde(deserialize_with = "object")]
    usage: Option<CompletionUsage>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionUsage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: u64,
    #[serde(deserialize_with = "count")]
    completion_tokens: u64,
    #[serde(deserialize_with = "object")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "object")]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    // A part of the output, which is counted there: a server that does not know it may write -1.
    #[serde(deserialize_with = "or_default")]
    reasoning_tokens: u64,
}

/// Reads the first choice of a list; `null` is a list without any.
fn first_choice<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<CompletionChoice<'de>>, D::Error> {
    deserializer.deserialize_any(FirstChoice)
}

struct FirstChoice;

impl<'de> Visitor<'de> for FirstChoice {
    type Value = Option<CompletionChoice<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut first = None;
        while let Some(choice) = seq.next_element::<CompletionChoice<'de>>()? {
            if choice.index == 0 && first.is_none() {
                first = Some(choice);
            }
        }
        Ok(first)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

impl ChatCompletion<'_> {
    /// Returns the token usage, if it is included.
    pub(super) fn usage(&self) -> Option<message::Usage> {
        let usage = self.usage.or_else(|| self.x_groq.as_ref()?.usage)?;
        let input = usage.prompt_tokens_details.unwrap_or_default();
        let output = usage.completion_tokens_details.unwrap_or_default();
        let mut ours = message::Usage::new(usage.prompt_tokens, usage.completion_tokens);
        ours.cached_input_tokens = input.cached_tokens;
        ours.cache_write_tokens = input.cache_write_tokens;
        ours.reasoning_tokens = output.reasoning_tokens;
        Some(ours)
    }
}

impl ToolCallPiece<'_> {
    /// Returns the id, empty if it is not said.
    pub(super) fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Returns the name of the tool, empty if it is not said.
    pub(super) fn name(&self) -> &str {
        self.function.name.as_deref().unwrap_or_default()
    }

    /// Takes the text of the arguments.
    pub(super) fn take_arguments(&mut self) -> String {
        std::mem::take(&mut self.function.arguments)
    }
}

impl ChatMessage<'_> {
    /// Returns the reasoning; servers that send both fields send the same text in each.
    pub(super) fn thoughts(&self) -> &str {
        if self.reasoning_content.is_empty() {
            &self.reasoning
        } else {
            &self.reasoning_content
        }
    }
}
