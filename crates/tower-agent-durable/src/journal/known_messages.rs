//! `KnownMessages: the messages of a conversation  ->  a hash for each, with all before it`
//!
//! What a process knows of the messages that it has journaled last, so that a turn hashes, writes
//! and compares only those that are new.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tower_agent::Message;
use tower_agent::message::Messages;
use tower_agent_conversations::{ConversationKey, StoreError};

use super::fingerprint::{Hash, hash};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::stored_messages::StoredMessages;
use crate::lock::lock;

/// The maximum number of conversations that are remembered.
const MOST: usize = 256;

/// The messages of a request, with what is known of them.
#[derive(Default)]
pub(super) struct KnownMessages {
    messages: Messages,
    /// The hash of each message together with all before it.
    hashes: Vec<Hash>,
    /// The place of the first of them in the database of the journal.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    stored: Mutex<Option<StoredMessages>>,
}

impl KnownMessages {
    /// Returns what is known of messages that may continue these.
    pub(super) fn followed_by(&self, messages: &Messages) -> Result<Self, StoreError> {
        let mut known = Self {
            messages: messages.clone(),
            ..Self::default()
        };
        // By identity: a message that was changed is another one, and nothing is taken over.
        if messages.continues(&self.messages) {
            known.hashes.clone_from(&self.hashes);
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            known.note_stored(lock(&self.stored).clone());
        }
        for message in messages.range(known.hashes.len()) {
            let before = known.hashes.last().copied();
            known.hashes.push(hash_after(before.as_ref(), message)?);
        }
        Ok(known)
    }

    /// Returns the hash of the messages, if there are any.
    pub(super) fn hash(&self) -> Option<&Hash> {
        self.hashes.last()
    }

    /// Returns the hashes of these messages, if they are this list.
    pub(super) fn hashes_of(&self, messages: &Messages) -> Option<&[Hash]> {
        let is_same = messages.len() == self.messages.len() && messages.continues(&self.messages);
        is_same.then_some(&*self.hashes)
    }

    /// Returns the hash of a message of this list, or of another one that has it at the same place,
    /// after messages with this hash.
    pub(super) fn hash_at(
        &self,
        index: usize,
        before: Option<&Hash>,
        message: &Message,
    ) -> Result<Hash, StoreError> {
        let is_known = self.messages.get(index).is_some_and(|known| {
            let known_before = index.checked_sub(1).and_then(|last| self.hashes.get(last));
            known.is_clone_of(message) && known_before == before
        });
        match self.hashes.get(index) {
            Some(known) if is_known => Ok(*known),
            _ => hash_after(before, message),
        }
    }

    /// Returns where the database has the first of these messages, as far as it is known.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn stored(&self, messages: &Messages) -> Option<StoredMessages> {
        let stored = lock(&self.stored).clone();
        stored.filter(|_| messages.continues(&self.messages))
    }

    /// Notes where the database has the first of the messages.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn note_stored(&self, stored: Option<StoredMessages>) {
        *lock(&self.stored) = stored;
    }
}

/// Returns the hash of a message and of those before it.
fn hash_after(before: Option<&Hash>, message: &Message) -> Result<Hash, StoreError> {
    // Without its id: the model does not receive it, and the same request can come through another
    // stream, whose messages have other ids.
    let content = (
        message.role(),
        message.parts(),
        message.provider(),
        message.finish_reason(),
        message.author(),
    );
    hash(&content, before.map_or(&[], |before| before))
}

impl fmt::Debug for KnownMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownMessages").finish_non_exhaustive()
    }
}

/// The conversations that this process has journaled last. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct LatestMessages(Arc<Mutex<Map>>);

type Map = HashMap<ConversationKey, Arc<KnownMessages>>;

impl LatestMessages {
    /// Returns what is known of a conversation.
    pub(super) fn get(&self, key: &ConversationKey) -> Arc<KnownMessages> {
        lock(&self.0).get(key).cloned().unwrap_or_default()
    }

    /// Remembers a conversation.
    pub(super) fn keep(&self, key: &ConversationKey, known: Arc<KnownMessages>) {
        let mut map = lock(&self.0);
        // Simpler than to find the oldest: one that was forgotten is read once more.
        if map.len() >= MOST {
            map.clear();
        }
        map.insert(key.clone(), known);
    }
}
