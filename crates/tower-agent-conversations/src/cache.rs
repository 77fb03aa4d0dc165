//! `Cache: conversations as they were read or written last`
//!
//! A turn reads only what is new: nothing if this process wrote the conversation last, and
//! otherwise the head and the entries after those that are known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::head::{Format, Head};
use crate::key::ConversationKey;
use crate::lock::lock;
use crate::store::{BoxStore, StoredConversation};

/// The maximum number of conversations that are remembered.
const MOST: usize = 256;

/// The entries of a conversation, in the form of their policy.
pub(crate) trait Entries: Clone + Default {
    /// Returns their number.
    fn count(&self) -> usize;

    /// Adds one, as it is stored.
    fn add(&mut self, entry: &str) -> Result<(), StoreError>;
}

/// A conversation as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Known<E, B> {
    pub(crate) version: u64,
    pub(crate) head: Head<B>,
    pub(crate) entries: E,
}

impl<E: Entries, B: DeserializeOwned> Known<E, B> {
    /// Reads a conversation that was loaded with all its entries.
    pub(crate) fn read(stored: &StoredConversation, format: Format) -> Result<Self, StoreError> {
        let head = Head::read(&stored.head, format)?;
        Self::read_after(E::default(), head, stored)
    }

    /// Reads the entries of a conversation that follow those that are known.
    fn read_after(
        mut entries: E,
        head: Head<B>,
        stored: &StoredConversation,
    ) -> Result<Self, StoreError> {
        for entry in &stored.entries {
            entries.add(entry)?;
        }
        Ok(Self {
            version: stored.version,
            head,
            entries,
        })
    }
}

type Map<E, B> = HashMap<ConversationKey, Known<E, B>>;

/// The conversations that this process has used last. Clones share them.
#[derive(Debug)]
pub(crate) struct Cache<E, B>(Arc<Mutex<Map<E, B>>>);

impl<E: Entries, B: Clone + DeserializeOwned> Cache<E, B> {
    /// Loads a conversation.
    pub(crate) async fn load(
        &self,
        store: &BoxStore,
        key: &ConversationKey,
        format: Format,
    ) -> Result<Option<Known<E, B>>, StoreError> {
        let known = lock(&self.0).get(key).cloned();
        let from = known.as_ref().map_or(0, |known| known.entries.count());
        let Some(stored) = store.load(key, from).await? else {
            lock(&self.0).remove(key);
            return Ok(None);
        };
        let Some(known) = known else {
            return Known::read(&stored, format).map(Some);
        };
        if known.version == stored.version {
            return Ok(Some(known));
        }
        let head = Head::<B>::read(&stored.head, format)?;
        if head.entries == known.head.entries {
            return Known::read_after(known.entries, head, &stored).map(Some);
        }
        // Others have replaced some of them.
        let whole = store.load(key, 0).await?;
        whole.map(|whole| Known::read(&whole, format)).transpose()
    }

    /// Remembers a conversation that no run has.
    pub(crate) fn keep(&self, key: &ConversationKey, known: Known<E, B>) {
        let mut map = lock(&self.0);
        // Simpler than to find the oldest: a forgotten conversation costs one load.
        if map.len() >= MOST {
            map.clear();
        }
        map.insert(key.clone(), known);
    }
}

impl<E, B> Clone for Cache<E, B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E, B> Default for Cache<E, B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
