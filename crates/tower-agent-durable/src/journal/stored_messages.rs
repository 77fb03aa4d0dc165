//! `StoredMessages: the first messages of a request  ->  the entries of a stored conversation`

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::fingerprint::Hash;
use crate::database::ConversationVersion;

/// The entries of a conversation that are the first messages of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionPart {
    pub(super) conversation: ConversationVersion,
    /// Their places among the messages of the entries. A thread may have others in between, which
    /// are not of this conversation.
    pub(super) entries: Vec<Range<usize>>,
}

/// The place of the first messages of a request in a stored conversation, as this process has found
/// them last.
#[derive(Clone, Debug)]
pub(super) struct StoredMessages {
    pub(super) part: SessionPart,
    /// The position of the last entry.
    pub(super) last: i64,
    /// The hash of the messages.
    pub(super) digest: Hash,
}

impl SessionPart {
    pub(super) fn has(&self, position: usize) -> bool {
        self.entries.iter().any(|range| range.contains(&position))
    }

    pub(super) fn length(&self) -> usize {
        self.entries.iter().map(ExactSizeIterator::len).sum()
    }

    pub(super) fn first(&self, length: usize) -> Self {
        let mut first = Self {
            entries: Vec::new(),
            ..self.clone()
        };
        let positions = self.entries.iter().cloned().flatten();
        positions
            .take(length)
            .for_each(|position| first.push(position));
        first
    }

    pub(super) fn push(&mut self, position: usize) {
        match self.entries.last_mut() {
            Some(range) if range.end == position => range.end += 1,
            _ => self.entries.push(position..position + 1),
        }
    }
}
