use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tower_agent::message::{Message, Messages};

/// The conversation of a thread: entries of its log, by index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Ranges", into = "Ranges")]
pub(crate) struct Branch {
    // Shared: a turn clones the thread several times, and few of the clones get another branch.
    indices: Arc<Vec<usize>>,
    /// The same, as it is stored: a branch that was never left is one range, however long it is.
    ranges: Arc<Ranges>,
    /// The messages of the entries. Collected once and then continued: each turn needs them, and a
    /// thread may have many.
    messages: OnceLock<Messages>,
}

/// Indices as ranges: the first of each, and its length.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Ranges(Vec<(usize, usize)>);

impl Ranges {
    fn extend(&mut self, indices: &[usize]) {
        for &index in indices {
            match self.0.last_mut() {
                Some((first, length)) if *first + *length == index => *length += 1,
                _ => self.0.push((index, 1)),
            }
        }
    }
}

impl From<Ranges> for Branch {
    fn from(ranges: Ranges) -> Self {
        let indices = ranges
            .0
            .iter()
            .flat_map(|&(first, length)| first..first.saturating_add(length));
        Self {
            indices: Arc::new(indices.collect()),
            ranges: Arc::new(ranges),
            messages: OnceLock::new(),
        }
    }
}

impl From<Branch> for Ranges {
    fn from(branch: Branch) -> Self {
        Arc::unwrap_or_clone(branch.ranges)
    }
}

impl Branch {
    fn new(indices: Vec<usize>) -> Self {
        let mut ranges = Ranges::default();
        ranges.extend(&indices);
        Self {
            indices: Arc::new(indices),
            ranges: Arc::new(ranges),
            messages: OnceLock::new(),
        }
    }

    /// Returns the entries from this one on.
    pub(crate) fn from(&self, from: usize) -> impl Iterator<Item = usize> {
        let ranges = self.ranges.0.iter();
        ranges.flat_map(move |&(first, length)| first.max(from)..first.saturating_add(length))
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
        let mut ranges = self.ranges;
        Arc::make_mut(&mut ranges).extend(new);
        if let Some(messages) = messages.get_mut() {
            new.iter()
                .copied()
                .filter_map(message_of)
                .for_each(|message| messages.push(message));
        }
        Self {
            indices: Arc::new(indices),
            ranges,
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
}
