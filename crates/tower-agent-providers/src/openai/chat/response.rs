use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::{Map, Value};

use super::content::Content;
use super::details::thought;
use super::provider::OPAQUE;
use super::usage::{CompletionUsage, Timings};
use crate::json::lenient::{
    error, exact_json_text, list, null_default, number, object, or_default, string,
};
use crate::json::{Choice, Choices, Fill, LenientText, Number, Presence, ReadFields, Word};

// Our own types: those of async-openai reject what many servers send. They are read in place, as a
// response may be thousands of chunks.

/// A response, or one chunk of a streamed one.
#[derive(Debug, Default)]
pub(super) struct ChatCompletion<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) model: Option<Cow<'a, str>>,
    pub(super) choices: Choices<CompletionChoice<'a>>,
    pub(super) has_citations: bool,
    pub(super) has_search_results: bool,
    usage: Option<Box<CompletionUsage>>,
    pub(super) object: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
}

impl<'de> ReadFields<'de> for ChatCompletion<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "id" => self.id = map.next_value::<Word<'_>>()?.word,
            "model" => self.model = map.next_value::<Word<'_>>()?.word,
            "object" => self.object = map.next_value::<Word<'_>>()?.word,
            "choices" => map.next_value_seed(&mut self.choices)?,
            "citations" => self.has_citations = map.next_value::<Presence>()?.is_set,
            "search_results" => self.has_search_results = map.next_value::<Presence>()?.is_set,
            "usage" => {
                let usage = map.next_value::<UsageField>()?.usage;
                self.usage = usage.or(self.usage.take());
            }
            "timings" => {
                let timings = map.next_value::<TimingsField>()?.timings;
                let usage = timings.map(|timings| Box::new(timings.into()));
                self.usage = self.usage.take().or(usage);
            }
            "x_groq" => {
                let groq = map.next_value::<GroqField>()?;
                self.usage = self
                    .usage
                    .take()
                    .or(groq.extension.and_then(|own| own.usage));
            }
            "error" => self.error = map.next_value::<ErrorField>()?.error,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct CompletionChoice<'a> {
    index: u64,
    /// Set in a plain response.
    pub(super) message: Option<Box<ChatMessage<'a>>>,
    /// Set in a chunk of a streamed response.
    pub(super) delta: Option<ChatMessage<'a>>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) error: Option<Value>,
    has_logprobs: bool,
    /// The place of the usage in a stream of Moonshot.
    usage: Option<Box<CompletionUsage>>,
}

impl Choice for CompletionChoice<'_> {
    fn index(&self) -> u64 {
        self.index
    }
}

impl<'de> ReadFields<'de> for CompletionChoice<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => self.index = map.next_value::<Number>()?.number.unwrap_or_default(),
            "delta" => {
                let delta = self.delta.insert(ChatMessage::default());
                if !map.next_value_seed(Fill(delta))? {
                    self.delta = None;
                }
            }
            "message" => {
                let mut message = Box::default();
                let is_object = map.next_value_seed(Fill(&mut *message))?;
                self.message = is_object.then_some(message);
            }
            "finish_reason" => self.finish_reason = map.next_value::<Word<'_>>()?.word,
            "logprobs" => self.has_logprobs = map.next_value::<Presence>()?.is_set,
            "usage" => self.usage = map.next_value::<UsageField>()?.usage,
            "error" => self.error = map.next_value::<ErrorField>()?.error,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// The model's message, or its next piece.
#[derive(Debug, Default)]
pub(super) struct ChatMessage<'a> {
    pub(super) content: Content<'a>,
    pub(super) reasoning_content: Cow<'a, str>,
    pub(super) reasoning: Cow<'a, str>,
    pub(super) reasoning_text: Cow<'a, str>,
    pub(super) reasoning_details: Vec<Value>,
    /// The fields that go back as they came.
    pub(super) opaque: Vec<(&'static str, Value)>,
    pub(super) refusal: Cow<'a, str>,
    /// It has annotations, executed tools, images or audio.
    has_more: bool,
    pub(super) tool_calls: Vec<ToolCallPiece<'a>>,
}

impl<'de> ReadFields<'de> for ChatMessage<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "content" => self.content = map.next_value()?,
            "reasoning_content" => {
                self.reasoning_content = map.next_value::<LenientText<'_>>()?.text
            }
            "reasoning" => self.reasoning = map.next_value::<LenientText<'_>>()?.text,
            "reasoning_text" => self.reasoning_text = map.next_value::<LenientText<'_>>()?.text,
            "reasoning_details" => {
                let details: Value = map.next_value()?;
                self.reasoning_details = match details {
                    Value::Array(details) => details,
                    _ => Vec::new(),
                };
            }
            "refusal" => self.refusal = map.next_value::<LenientText<'_>>()?.text,
            "annotations" | "executed_tools" | "images" | "audio" => {
                self.has_more |= map.next_value::<Presence>()?.is_set;
            }
            "tool_calls" => {
                self.tool_calls = map.next_value::<ToolCallsField<'_>>()?.calls;
            }
            name => match OPAQUE.iter().find(|opaque| **opaque == name) {
                Some(opaque) => self.opaque.push((opaque, map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            },
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct ToolCallsField<'a> {
    #[serde(borrow, deserialize_with = "list")]
    calls: Vec<ToolCallPiece<'a>>,
}

/// A tool call, or a piece of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCallPiece<'a> {
    #[serde(deserialize_with = "number")]
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
    #[serde(borrow, deserialize_with = "exact_json_text")]
    arguments: Cow<'a, str>,
}

/// The token usage, boxed as one chunk in many has it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct UsageField {
    #[serde(deserialize_with = "object")]
    usage: Option<Box<CompletionUsage>>,
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct TimingsField {
    #[serde(deserialize_with = "object")]
    timings: Option<Timings>,
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct ErrorField {
    #[serde(deserialize_with = "error")]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct GroqField {
    #[serde(deserialize_with = "object")]
    extension: Option<GroqExtension>,
}

/// The place of the usage in a stream of Groq.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroqExtension {
    #[serde(deserialize_with = "object")]
    usage: Option<Box<CompletionUsage>>,
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
        let usage = self.usage.take().or(self.choices.first.usage.take());
        usage.map(|usage| *usage)
    }
}

impl ToolCallPiece<'_> {
    /// Creates a whole call without an id.
    pub(super) fn new(name: String, arguments: String) -> Self {
        let name = Some(name.into());
        Self {
            function: FunctionPiece {
                name,
                arguments: arguments.into(),
            },
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

    /// Returns the text of the arguments.
    pub(super) fn arguments(&self) -> &str {
        &self.function.arguments
    }

    /// Takes the text of the arguments.
    pub(super) fn take_arguments(&mut self) -> String {
        std::mem::take(&mut self.function.arguments).into_owned()
    }
}

impl ChatMessage<'_> {
    fn has_more(&self) -> bool {
        self.has_more
    }

    /// Takes the reasoning; servers that send several of its fields send the same text in each.
    pub(super) fn take_thoughts(&mut self) -> String {
        if !self.reasoning_content.is_empty() {
            return std::mem::take(&mut self.reasoning_content).into_owned();
        }
        if !self.reasoning.is_empty() {
            return std::mem::take(&mut self.reasoning).into_owned();
        }
        if !self.reasoning_text.is_empty() {
            return std::mem::take(&mut self.reasoning_text).into_owned();
        }
        self.reasoning_details.iter().map(thought).collect()
    }
}
