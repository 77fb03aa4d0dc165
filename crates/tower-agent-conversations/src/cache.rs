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
use crate::store::BoxStore;

/// The maximum number of conversations that are remembered.
const MOST: usize = 256;

/// What a policy makes of the entries of a conversation.
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
        let Some(mut stored) = store.load(key, from).await? else {
            lock(&self.0).remove(key);
            return Ok(None);
        };
        let mut entries = E::default();
        let mut head = None;
        if let Some(known) = known {
            if known.version == stored.version {
                return Ok(Some(known));
            }
            let read = Head::<B>::read(&stored.head, format)?;
            if read.entries == known.head.entries {
                entries = known.entries;
                head = Some(read);
            } else {
                // Others have replaced some of them.
                match store.load(key, 0).await? {
                    Some(whole) => stored = whole,
                    None => return Ok(None),
                }
            }
        }
        let head = match head {
            Some(head) => head,
            None => Head::read(&stored.head, format)?,
        };
        for entry in &stored.entries {
            entries.add(entry)?;
        }
        let known = Known {
            version: stored.version,
            head,
            entries,
        };
        Ok(Some(known))
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
