use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};

use crate::message::{Messages, Role, Usage};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) messages: Messages,
    #[serde(default, skip_serializing_if = "Head::is_empty")]
    pub(crate) head: Head,
}

/// The saved data of a conversation beside its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The number of messages that it was saved with.
    pub(super) length: usize,
    /// The agent that continues, as a path from the agent that opened the conversation. Unknown for
    /// messages alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn_of: Option<Arc<str>>,
    /// The number of messages that the caller's conversation has as well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) shared: usize,
    /// The agent has responded, and the caller's conversation does not have the response yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) is_done: bool,
    /// The number of the next message's id.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) next_id: u32,
    /// The run that goes on when the conversation is resumed, if it waits for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<Paused>,
    /// The round of each team that works in several, by the team's path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) rounds: BTreeMap<Arc<str>, u32>,
    /// Conversations whose messages are not in this one, by where they are held.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "write_nested"
    )]
    pub(super) nested: BTreeMap<String, Saved>,
}

/// The progress of an agent in a run that may be resumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Paused {
    /// The number of the run of the conversation that it began in.
    pub(super) turn: u64,
    /// The number of messages before it.
    pub(crate) from: usize,
    pub(crate) iterations: u32,
    pub(crate) usage: Usage,
}

impl Paused {
    /// Creates the progress of an agent that begins after this many messages.
    pub(crate) fn at(from: usize) -> Self {
        Self {
            from,
            ..Self::default()
        }
    }

    /// Returns the progress of an agent that begins after this many messages, in the same run.
    pub(super) fn begun_at(&self, from: usize) -> Self {
        Self {
            turn: self.turn,
            ..Self::at(from)
        }
    }
}

/// The maximum number of conversations in one another. Each takes three levels of JSON, of the 127
/// that are read: the values in their messages need 64, and what is around those some ten.
const MAX_CONVERSATIONS: usize = 16;

fn write_nested<S: Serializer>(
    nested: &BTreeMap<String, Saved>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if are_deeper_than(nested, MAX_CONVERSATIONS) {
        return Err(S::Error::custom(format_args!(
            "more than {MAX_CONVERSATIONS} conversations in one another cannot be stored, as they \
             could not be read again"
        )));
    }
    nested.serialize(serializer)
}

fn are_deeper_than(nested: &BTreeMap<String, Saved>, levels: usize) -> bool {
    let mut conversations = nested.values();
    conversations.any(|saved| levels == 0 || are_deeper_than(&saved.head.nested, levels - 1))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Head {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the agents have come as far as in another head.
    pub(super) fn has_work_of(&self, other: &Self) -> bool {
        self.nested == other.nested && self.rounds == other.rounds
    }

    /// Returns the head for the number of messages that the conversation has in the end.
    pub(crate) fn for_length(mut self, length: usize) -> Self {
        self.length = length;
        self
    }

    /// Returns the head of another branch of the conversation. Only ids go on.
    pub(crate) fn for_branch(&self) -> Self {
        Self {
            next_id: self.next_id,
            ..Self::default()
        }
    }

    /// Returns the head of a run that waits for nothing: whoever resumes it begins another.
    pub(crate) fn ended(mut self) -> Self {
        self.paused = None;
        self.rounds.clear();
        for saved in self.nested.values_mut() {
            saved.head = std::mem::take(&mut saved.head).ended();
        }
        self
    }

    /// Returns the head if it still describes these messages: if only tool results were added.
    pub(super) fn for_messages(self, messages: &Messages) -> Self {
        let mut added = messages.range(self.length);
        if messages.len() >= self.length && added.all(|message| message.role() == Role::Tool) {
            self
        } else {
            self.for_branch()
        }
    }
}
