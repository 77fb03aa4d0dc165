//! A summary, as it is kept and as the model reads it.

use serde::{Deserialize, Serialize};
use tower_agent::context::RunContext;
use tower_agent::message::{Message, MessageId};

use crate::flow::Label;
use crate::own_tool::LOOK_BACK;

/// A summary of the messages up to one of them, without those that are shown: kept in the private
/// state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) text: String,
    /// The last message that it stands for.
    pub(super) last: MessageId,
    /// The last message of the conversation when it was made.
    pub(super) made_after: MessageId,
    /// The last message whose results were cleared then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cleared: Option<MessageId>,
    /// The label of all that it was made of, if a guard was there. Some of that may be gone when it
    /// is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<Label>,
}

impl Summary {
    /// Returns the summary under a key, if there is one.
    pub(super) fn find(context: &RunContext, key: &str) -> Option<Self> {
        let private = context.private_state();
        // A summary that cannot be read is made again.
        private.read(key, |summary| Self::deserialize(summary?).ok())
    }

    /// Returns the message that the model reads.
    pub(super) fn message(&self, can_look_back: bool) -> Message {
        message_of(&self.text, can_look_back)
    }
}

/// Returns the message with the text of a summary.
pub(super) fn message_of(text: &str, can_look_back: bool) -> Message {
    let mut head = String::from("[A summary of earlier messages, which were left out.");
    if can_look_back {
        head.push_str(&format!(
            " `{LOOK_BACK}` shows one of them by its name in brackets."
        ));
    }
    Message::user(format!("{head}]\n{text}"))
}
