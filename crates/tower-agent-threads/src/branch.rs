use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tower_agent::message::{Message, Messages};

/// The conversation of a thread: entries of its log, by index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Branch {
    // Shared: a turn clones the thread several times, and few of the clones get another branch.
    indices: Arc<Vec<usize>>,
    /// The messages of the entries. Collected once and then continued: each turn needs them, and a
    /// thread may have many.
    #[serde(skip)]
    messages: OnceLock<Messages>,
}

impl Branch {
    fn new(indices: Vec<usize>) -> Self {
        Self {
            indices: Arc::new(indices),
            messages: OnceLock::new(),
        }
    }

    pub(crate) fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// Returns the messages. `message_of` returns that of an entry, if it has one.
    pub(crate) fn messages(&self, message_of: impl Fn(usize) -> Option<Message>) -> Messages {
        let collect = || {
            self.indices
                .iter()
                .copied()
                .filter_map(message_of)
                .collect()
        };
        self.messages.get_or_init(collect).clone()
    }

    /// Returns a branch with these entries, which is a continuation of this one if it begins with
    /// it.
    pub(crate) fn continued(
        self,
        indices: Vec<usize>,
        message_of: impl Fn(usize) -> Option<Message>,
    ) -> Self {
        let Some(new) = indices.strip_prefix(self.indices()) else {
            return Self::new(indices);
        };
        let mut messages = self.messages;
        if let Some(messages) = messages.get_mut() {
            new.iter()
                .copied()
                .filter_map(message_of)
                .for_each(|message| messages.push(message));
        }
        Self {
            indices: Arc::new(indices),
            messages,
        }
    }

    /// Takes the list of a run if it has the same messages: the run has noted what it knows of
    /// them.
    pub(crate) fn share(&mut self, messages: &Messages) {
        if let Some(known) = self.messages.get_mut()
            && known.len() == messages.len()
            && messages.continues(known)
        {
            *known = messages.clone();
        }
    }

    /// Returns the branch for a thread with another log.
    pub(crate) fn without_messages(self) -> Self {
        Self {
            messages: OnceLock::new(),
            ..self
        }
    }
}
