use std::fmt;
use std::ops::Index;

use rpds::VectorSync;
use serde::{Deserialize, Serialize};

use super::Message;

/// The messages of a conversation, first to last.
///
/// A persistent list: cloning is O(1), and appending to one that others share copies a few nodes
/// of a shallow tree, never the messages.
///
/// ```
/// use tower_agent::Message;
/// use tower_agent::message::Messages;
///
/// let shared: Messages = (0..1000).map(|i| Message::user(i.to_string())).collect();
/// let mut longer = shared.clone();
/// longer.push(Message::assistant("done"));
/// assert_eq!((shared.len(), longer.len()), (1000, 1001));
/// assert_eq!(longer[1000].text(), "done");
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Messages(VectorSync<Message>);

impl Messages {
    /// No messages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.0.push_back_mut(message);
    }

    /// Takes the last message off.
    pub fn pop(&mut self) -> Option<Message> {
        let last = self.0.last().cloned();
        self.0.drop_last_mut();
        last
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The message at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Message> {
        self.0.get(index)
    }

    /// The message at `index`, to change. Others that share the list keep the old one.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Message> {
        self.0.get_mut(index)
    }

    /// The last message.
    #[must_use]
    pub fn last(&self) -> Option<&Message> {
        self.0.last()
    }

    /// All of them, first to last.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.range(0)
    }

    /// Those from `start` on.
    #[must_use]
    pub fn range(&self, start: usize) -> Iter<'_> {
        Iter { messages: self, front: start.min(self.len()), back: self.len() }
    }
}

impl Index<usize> for Messages {
    type Output = Message;

    fn index(&self, index: usize) -> &Message {
        &self.0[index]
    }
}

impl Extend<Message> for Messages {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl FromIterator<Message> for Messages {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        let mut list = Self::new();
        list.extend(messages);
        list
    }
}

impl<const N: usize> From<[Message; N]> for Messages {
    fn from(messages: [Message; N]) -> Self {
        messages.into_iter().collect()
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        messages.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Message;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// Walks over messages, from either end.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    messages: &'a Messages,
    front: usize,
    back: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Message;

    fn next(&mut self) -> Option<&'a Message> {
        if self.front == self.back {
            return None;
        }
        self.front += 1;
        self.messages.get(self.front - 1)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.back - self.front;
        (left, Some(left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front == self.back {
            return None;
        }
        self.back -= 1;
        self.messages.get(self.back)
    }
}

impl ExactSizeIterator for Iter<'_> {}
