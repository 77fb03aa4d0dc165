use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::Messages;

/// The conversations of agents that wait somewhere down the tree, by where they are called.
///
/// The transcript of the agent that was asked says nothing of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Suspended(BTreeMap<String, Conversation>);

/// One such conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    pub(crate) messages: Messages,
    /// The caller's transcript has what comes before.
    pub(crate) told: usize,
    /// The agent has finished, and the transcript has no room for its answer yet.
    #[serde(default)]
    pub(crate) done: bool,
}

impl Suspended {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, path: String, conversation: Conversation) {
        self.0.insert(path, conversation);
    }

    pub(super) fn remove(&mut self, path: &str) -> Option<Conversation> {
        self.0.remove(path)
    }
}
