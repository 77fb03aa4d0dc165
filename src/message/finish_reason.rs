use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The response is complete, or a stop text was reached.
    #[default]
    Stop,
    /// The model called tools.
    ToolCalls,
    /// The limit of output tokens or of the context window was reached. An agent makes none of the
    /// tool calls of such a response.
    Length,
    /// The provider's content filter stopped the response. An agent makes none of its tool calls.
    ContentFilter,
    /// The model refused to answer; its text may say why.
    Refusal,
    /// The provider interrupted a long turn of its own tools. A call whose messages end with this
    /// one continues it, which an agent makes by itself, as one of its iterations.
    PauseTurn,
    /// Another reason, in the provider's own term.
    Other(Cow<'static, str>),
}

impl FinishReason {
    /// Returns whether the response ends where something stopped it: its last sentence or tool call
    /// may be a part of what the model was about to write.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Length | Self::ContentFilter)
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::PauseTurn => "pause_turn",
            Self::Other(word) => word,
        })
    }
}

/// The reason why the last response of a model is no answer to what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoAnswer {
    /// It was cut off: [`FinishReason::Length`].
    CutOff,
    /// The provider's filter stopped it: [`FinishReason::ContentFilter`].
    Filtered,
    /// The model refused: [`FinishReason::Refusal`].
    Refused,
    /// It has neither a word nor anything else to show; reasoning does not count.
    Empty,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutOff => "the answer was cut off at its maximum length",
            Self::Filtered => "the provider's content filter stopped the answer",
            Self::Refused => "the model refused to answer",
            Self::Empty => "the answer is empty",
        })
    }
}
