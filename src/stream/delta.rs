use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A piece of a streamed response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delta {
    /// A piece of text.
    Text(String),
    /// A piece of reasoning.
    Reasoning(String),
    /// A tool call starts. `index` numbers the calls of one response.
    ToolCall {
        /// The index of the call in the response.
        index: usize,
        /// The provider's id of the call.
        id: Arc<str>,
        /// The name of the tool.
        name: Arc<str>,
    },
    /// A piece of a tool call's arguments, as JSON text.
    Arguments {
        /// The index of the call in the response.
        index: usize,
        /// The next piece of the text.
        json: String,
    },
}

impl Delta {
    /// Returns whether it has no content.
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
