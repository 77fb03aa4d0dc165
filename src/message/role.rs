use serde::{Deserialize, Serialize};

/// The role of a message's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions within the conversation.
    System,
    /// The user or the calling program.
    User,
    /// The model.
    Assistant,
    /// A tool, with the result of a call.
    Tool,
}
