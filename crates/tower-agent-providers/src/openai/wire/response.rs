use serde::Deserialize;
use serde_json::{Map, Value};

use super::lenient::{json_text, null_default, or_default, words};
use tower_agent::message;

// Our own types: those of async-openai reject what many servers send.

/// A response, or one chunk of a streamed one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Answer {
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) model: Option<String>,
    #[serde(deserialize_with = "null_default")]
    pub(in super::super) choices: Vec<Choice>,
    #[serde(deserialize_with = "or_default")]
    usage: Option<Usage>,
    #[serde(deserialize_with = "or_default")]
    x_groq: Option<Groq>,
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) object: Option<String>,
    pub(in super::super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Choice {
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) index: u64,
    /// Set in a plain response.
    pub(in super::super) message: Option<Said>,
    /// Set in a chunk of a streamed response.
    pub(in super::super) delta: Option<Said>,
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) finish_reason: Option<String>,
    pub(in super::super) error: Option<Value>,
}

/// The model's message, or its next piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Said {
    #[serde(deserialize_with = "words")]
    pub(in super::super) content: String,
    #[serde(deserialize_with = "words")]
    pub(in super::super) reasoning_content: String,
    #[serde(deserialize_with = "words")]
    pub(in super::super) reasoning: String,
    #[serde(deserialize_with = "words")]
    pub(in super::super) refusal: String,
    #[serde(deserialize_with = "null_default")]
    pub(in super::super) tool_calls: Vec<ToolCallPiece>,
}

/// A tool call, or a piece of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct ToolCallPiece {
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) index: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) id: String,
    #[serde(deserialize_with = "null_default")]
    pub(in super::super) function: Function,
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) extra_content: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct Function {
    #[serde(deserialize_with = "or_default")]
    pub(in super::super) name: String,
    #[serde(deserialize_with = "json_text")]
    pub(in super::super) arguments: String,
}

/// Where Groq puts the usage of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Groq {
    #[serde(deserialize_with = "or_default")]
    usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(deserialize_with = "or_default")]
    prompt_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    completion_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    prompt_tokens_details: PromptDetails,
    #[serde(deserialize_with = "or_default")]
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "or_default")]
    cached_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    cache_write_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    #[serde(deserialize_with = "or_default")]
    reasoning_tokens: u64,
}

impl Answer {
    /// Returns the token usage, if it is included.
    pub(in super::super) fn usage(&self) -> Option<message::Usage> {
        let usage = self.usage.or_else(|| self.x_groq.as_ref()?.usage)?;
        let mut ours = message::Usage::new(usage.prompt_tokens, usage.completion_tokens);
        ours.cached_input_tokens = usage.prompt_tokens_details.cached_tokens;
        ours.cache_write_tokens = usage.prompt_tokens_details.cache_write_tokens;
        ours.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens;
        Some(ours)
    }

    /// Returns the first choice.
    pub(in super::super) fn choice(&mut self) -> Option<&mut Choice> {
        self.choices.iter_mut().find(|choice| choice.index == 0)
    }
}

impl Said {
    /// Returns the reasoning; servers that send both fields send the same text in each.
    pub(in super::super) fn thoughts(&self) -> &str {
        if self.reasoning_content.is_empty() { &self.reasoning } else { &self.reasoning_content }
    }
}
