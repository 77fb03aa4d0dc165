use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::content::{Content, content};
use super::details::thought;
use super::usage::CompletionUsage;
use crate::json::lenient::{is_set, json_text, null_default, object, or_default, string, text};

// Our own types: those of async-openai reject what many servers send.

/// A response, or one chunk of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatCompletion<'a> {
    #[serde(borrow, deserialize_with = "string")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "choices")]
    pub(super) choices: Choices<'a>,
    #[serde(rename = "citations", deserialize_with = "is_set")]
    pub(super) has_citations: bool,
    #[serde(rename = "search_results", deserialize_with = "is_set")]
    pub(super) has_search_results: bool,
    // Boxes, as one chunk in many has these: the others are moved with less.
    #[serde(deserialize_with = "object")]
    usage: Option<Box<CompletionUsage>>,
    #[serde(deserialize_with = "object")]
    x_groq: Option<Groq>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) object: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
}

/// The choice that becomes the message.
#[derive(Debug, Default)]
pub(super) struct Choices<'a> {
    pub(super) first: Option<CompletionChoice<'a>>,
    pub(super) has_others: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CompletionChoice<'a> {
    #[serde(deserialize_with = "or_default")]
    pub(super) index: u64,
    /// Set in a plain response.
    #[serde(borrow)]
    pub(super) message: Option<Box<ChatMessage<'a>>>,
    /// Set in a chunk of a streamed response.
    #[serde(borrow)]
    pub(super) delta: Option<ChatMessage<'a>>,
    #[serde(borrow, deserialize_with = "string")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
    #[serde(rename = "logprobs", deserialize_with = "is_set")]
    has_logprobs: bool,
}

/// The model's message, or its next piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatMessage<'a> {
    #[serde(deserialize_with = "content")]
    pub(super) content: Content,
    #[serde(deserialize_with = "text")]
    pub(super) reasoning_content: String,
    #[serde(deserialize_with = "text")]
    pub(super) reasoning: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) reasoning_details: Vec<Value>,
    #[serde(deserialize_with = "text")]
    pub(super) refusal: String,
    #[serde(rename = "annotations", deserialize_with = "is_set")]
    has_annotations: bool,
    #[serde(rename = "executed_tools", deserialize_with = "is_set")]
    has_executed_tools: bool,
    #[serde(rename = "images", deserialize_with = "is_set")]
    has_images: bool,
    #[serde(rename = "audio", deserialize_with = "is_set")]
    has_audio: bool,
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
    usage: Option<Box<CompletionUsage>>,
}

/// Reads the first choice of a list; `null` is a list without any.
fn choices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Choices<'de>, D::Error> {
    deserializer.deserialize_any(ReadChoices)
}

struct ReadChoices;

impl<'de> Visitor<'de> for ReadChoices {
    type Value = Choices<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut choices = Choices::default();
        while let Some(choice) = seq.next_element::<CompletionChoice<'de>>()? {
            if choice.index == 0 && choices.first.is_none() {
                choices.first = Some(choice);
            } else {
                choices.has_others = true;
            }
        }
        Ok(choices)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Choices::default())
    }
}

impl CompletionChoice<'_> {
    /// Returns whether it has more than is read of it.
    pub(super) fn has_more(&self) -> bool {
        let message = self.message.as_deref();
        self.has_logprobs
            || message.is_some_and(ChatMessage::has_more)
            || self.delta.as_ref().is_some_and(ChatMessage::has_more)
    }
}

impl ChatCompletion<'_> {
    /// Takes the token usage, if it is included.
    pub(super) fn take_usage(&mut self) -> Option<CompletionUsage> {
        let usage = self.usage.take();
        let usage = usage.or_else(|| self.x_groq.take()?.usage);
        usage.map(|usage| *usage)
    }
}

impl ToolCallPiece<'_> {
    /// Creates a whole call without an id.
    pub(super) fn new(name: String, arguments: String) -> Self {
        let name = Some(name.into());
        Self {
            function: FunctionPiece { name, arguments },
            ..Self::default()
        }
    }

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
    fn has_more(&self) -> bool {
        self.has_annotations || self.has_executed_tools || self.has_images || self.has_audio
    }

    /// Takes the reasoning; servers that send several of its fields send the same text in each.
    pub(super) fn take_thoughts(&mut self) -> String {
        if !self.reasoning_content.is_empty() {
            return std::mem::take(&mut self.reasoning_content);
        }
        if !self.reasoning.is_empty() {
            return std::mem::take(&mut self.reasoning);
        }
        self.reasoning_details.iter().map(thought).collect()
    }
}
