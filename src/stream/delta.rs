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

/// A delta, and what it belongs to.
///
/// A new attempt at the same call says that the deltas of the one before are void: a retry or a
/// fallback has begun again. A new call says that the answer before is complete, unless agents
/// answer side by side, as in a [parallel team](crate::Agent::parallel).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Which model call of the run, from 0, in the order they began, whichever agent made it.
    pub call: u32,
    /// Which attempt at this call, from 0.
    pub attempt: u32,
    /// What was written.
    pub delta: Delta,
}
