//! A conversation in its saved form.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::{Message, Messages, Role};

/// One conversation in its saved form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Conversation {
    pub(crate) messages: Messages,
    #[serde(skip_serializing_if = "Suspended::is_empty")]
    pub(crate) suspended: Suspended,
}

/// The saved data of a conversation besides its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Suspended {
    pub(super) rest: Rest,
    /// Conversations that are in no other transcript, by where they are held.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) nested: BTreeMap<String, Conversation>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Rest {
    /// The number of messages.
    pub(super) length: usize,
    /// The agent that continues, as a path from the agent that opened the conversation. Unknown for
    /// messages alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turn_of: Option<Arc<str>>,
    /// The number of messages that the caller's transcript has.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) told: usize,
    /// The agent has responded, and the caller's transcript does not have the response yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_done: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Suspended {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the data for the messages that the conversation has in the end.
    pub(crate) fn for_length(mut self, length: usize) -> Self {
        self.rest.length = length;
        self
    }

    /// Returns the data that is still valid for these messages: all of it, unless more than tool
    /// results were added.
    pub(super) fn or_nothing(self, messages: &Messages) -> Self {
        let is_answered = |message: &Message| message.role() == Role::Tool;
        let holds =
            messages.len() >= self.rest.length && messages.range(self.rest.length).all(is_answered);
        if holds { self } else { Self::default() }
    }
}
