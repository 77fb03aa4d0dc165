use std::sync::Arc;

/// A piece of an answer as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// More words.
    Text(String),
    /// More of what the model thinks.
    Reasoning(String),
    /// A tool call begins. `index` numbers the calls of one answer.
    ToolCall {
        /// Which call of the answer.
        index: usize,
        /// The provider's name for the call.
        id: Arc<str>,
        /// The tool.
        name: Arc<str>,
    },
    /// More of a tool call's arguments, as JSON text.
    Arguments {
        /// Which call of the answer.
        index: usize,
        /// The next piece of the text.
        json: String,
    },
}

/// A delta, and the attempt that it belongs to.
///
/// A new attempt number says that the deltas of the one before are void: a retry or a fallback
/// has begun again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Which attempt, counted from 0 for each sink.
    pub attempt: u32,
    /// What was written.
    pub delta: Delta,
}
