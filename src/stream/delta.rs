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

impl Delta {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) | Self::Reasoning(text) | Self::Arguments { json: text, .. } => {
                text.is_empty()
            }
            Self::ToolCall { .. } => false,
        }
    }
}
