use std::fmt;
use std::ops::{Index, Range};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::message::Message;

/// Number of messages in a chunk.
const CHUNK: usize = 32;

type Chunk = Arc<Vec<Message>>;

/// The messages of a conversation, oldest first.
///
/// Cloning is O(1): clones share their chunks. Appending happens in place, or copies the handles of
/// the last few messages if another clone shares them; the messages themselves are never copied.
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
#[derive(Clone, Default)]
pub struct Messages {
    /// All chunks but the last, of `CHUNK` messages each.
    full: Option<Arc<Vec<Chunk>>>,
    /// The last chunk; not empty while there are messages.
    tail: Option<Chunk>,
    /// The number of messages, from the first on, that are known to have an id. `u32`, as there are
    /// many lists.
    identified: u32,
    /// The number of messages, from the first on, that are known to be whole.
    whole: u32,
}

impl Messages {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        match &mut self.tail {
            Some(tail) if tail.len() < CHUNK => append(tail, message),
            tail => {
                // With room for all that it can take.
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(message);
                if let Some(chunk) = tail.replace(Arc::new(chunk)) {
                    append(self.full.get_or_insert_default(), chunk);
                }
            }
        }
    }

    /// Removes the last message and returns it.
    pub fn pop(&mut self) -> Option<Message> {
        // Cloned, since another list may share the chunk.
        let last = self.last().cloned()?;
        self.truncate(self.len() - 1);
        Some(last)
    }

    /// Keeps the first `len` messages and drops the rest.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        self.forget_from(len);
        let chunks = len.div_ceil(CHUNK);
        if chunks <= self.full().len() {
            // The last of the full chunks becomes the tail.
            let full = self.full.as_mut().map(Arc::make_mut);
            self.tail = full.and_then(|full| full.drain(chunks.saturating_sub(1)..).next());
        }
        let Some(tail) = self.tail.as_mut().filter(|_| len > 0) else {
            *self = Self::default();
            return;
        };
        let left = len - (chunks - 1) * CHUNK;
        match Arc::get_mut(tail) {
            Some(own) => own.truncate(left),
            // Shared with another list: only the messages that stay are copied.
            None => *tail = Arc::new(tail[..left].to_vec()),
        }
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.full().len() * CHUNK + self.tail().len()
    }

    /// Returns whether there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tail.is_none()
    }

    /// Returns the message at `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Message> {
        match self.full().get(index / CHUNK) {
            Some(chunk) => chunk.get(index % CHUNK),
            None => self.tail().get(index - self.full().len() * CHUNK),
        }
    }

    /// Returns the message at `index`, to change it. Other lists that share it keep the old
    /// message.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Message> {
        if index >= self.len() {
            return None;
        }
        self.forget_from(index);
        let chunk = match index / CHUNK {
            at if at < self.full().len() => Arc::make_mut(self.full.as_mut()?).get_mut(at)?,
            _ => self.tail.as_mut()?,
        };
        Arc::make_mut(chunk).get_mut(index % CHUNK)
    }

    /// Returns the last message.
    #[must_use]
    pub fn last(&self) -> Option<&Message> {
        self.tail().last()
    }

    /// Returns an iterator over all messages, oldest first.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.range(0)
    }

    /// Returns an iterator over the messages from `start` on.
    #[must_use]
    pub fn range(&self, start: usize) -> Iter<'_> {
        Iter {
            messages: self,
            range: start..self.len(),
        }
    }

    /// Returns whether this list begins with clones of the messages of an earlier one. Equal
    /// messages that were created apart are not the same: to compare them would take a pass over
    /// every byte.
    ///
    /// Takes time only for messages whose place in memory the two lists do not share.
    ///
    /// ```
    /// use tower_agent::Message;
    /// use tower_agent::message::Messages;
    ///
    /// let earlier = Messages::from([Message::user("Hello")]);
    /// let mut later = earlier.clone();
    /// later.push(Message::assistant("Hi"));
    /// assert!(later.continues(&earlier));
    /// assert!(!later.continues(&Messages::from([Message::user("Hello")])));
    /// ```
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        let from = self.shared_with(earlier);
        let mut messages = self.range(from);
        earlier.range(from).all(|known| {
            let message = messages.next();
            message.is_some_and(|message| message.is_clone_of(known))
        })
    }

    pub(crate) fn identified(&self) -> usize {
        self.identified as usize
    }

    /// Notes the messages that have an id, up to the first that has none. Returns whether all have
    /// one.
    pub(crate) fn note_identified(&mut self) -> bool {
        let new = self.range(self.identified());
        let new = new.take_while(|message| message.id().is_some()).count();
        let identified = self.identified() + new;
        self.identified = mark(identified);
        identified == self.len()
    }

    /// Returns the number of messages, from the first on, that are known to be whole: the results
    /// of their calls follow them, all and in order.
    pub(crate) fn whole(&self) -> usize {
        self.whole as usize
    }

    pub(crate) fn note_whole(&mut self, len: usize) {
        self.whole = mark(len);
    }

    /// Forgets what is known of the messages from this index on, which change.
    fn forget_from(&mut self, index: usize) {
        self.identified = self.identified.min(mark(index));
        if index < self.whole() {
            // The messages before may end with calls whose results are gone.
            self.whole = 0;
        }
    }

    /// Returns the index of the first message that a later list does not have in this place; `None`
    /// if it begins with this one.
    pub(crate) fn changed_in(&self, later: &Self) -> Option<usize> {
        let mut rest = self.shared_with(later)..self.len();
        rest.find(|index| later.get(*index) != self.get(*index))
    }

    /// Returns the number of messages, from the first on, whose chunks need no look inside, as the
    /// two share them.
    fn shared_with(&self, other: &Self) -> usize {
        let pairs = self.full().iter().zip(other.full());
        let shared = pairs.take_while(|(one, other)| Arc::ptr_eq(one, other));
        shared.count() * CHUNK
    }

    #[inline]
    fn full(&self) -> &[Chunk] {
        self.full.as_ref().map_or(&[], |full| full)
    }

    #[inline]
    fn tail(&self) -> &[Message] {
        self.tail.as_ref().map_or(&[], |tail| tail)
    }
}

/// Returns a number of messages of which something is known. Of more than fit, less is known.
fn mark(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}

/// Appends in place, or to a copy with room for a chunk if another clone shares the list.
fn append<T: Clone>(list: &mut Arc<Vec<T>>, item: T) {
    if let Some(own) = Arc::get_mut(list) {
        return own.push(item);
    }
    let mut own = Vec::with_capacity((list.len() + 1).next_multiple_of(CHUNK));
    own.extend_from_slice(list);
    own.push(item);
    *list = Arc::new(own);
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        // Lists of one length have chunks of the same bounds, and shared chunks need no look
        // inside.
        let same = |(one, other): (&Chunk, &Chunk)| Arc::ptr_eq(one, other) || one == other;
        self.len() == other.len()
            && self.full().iter().zip(other.full()).all(same)
            && self.tail.iter().zip(&other.tail).all(same)
    }
}

impl Index<usize> for Messages {
    type Output = Message;

    fn index(&self, index: usize) -> &Message {
        match self.full().get(index / CHUNK) {
            Some(chunk) => &chunk[index % CHUNK],
            None => &self.tail()[index - self.full().len() * CHUNK],
        }
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

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
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

/// An iterator over messages, from either end.
#[derive(Clone)]
pub struct Iter<'a> {
    messages: &'a Messages,
    range: Range<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Message;

    #[inline]
    fn next(&mut self) -> Option<&'a Message> {
        self.messages.get(self.range.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.messages.get(self.range.next_back()?)
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
