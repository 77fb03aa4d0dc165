//! A store of a test's own, which records what it is asked and fails when told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tower_agent_conversations::{
    Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore,
    StoredConversation,
};

use tower_agent_durable::StoreError;

/// In memory, without expiry and lists. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Inner>>);

#[derive(Default)]
pub(crate) struct Inner {
    last: u64,
    sessions: HashMap<ConversationKey, StoredConversation>,
    pub(crate) loads: usize,
    pub(crate) appends: Vec<Append>,
    /// Fails before it does anything.
    pub(crate) is_down: bool,
    /// Fails after it has written.
    pub(crate) is_unsure: bool,
}

impl Memory {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Writes as somebody else would.
    pub(crate) fn touch(&self, key: &ConversationKey) {
        let inner = &mut *self.inner();
        inner.last += 1;
        let session = inner.sessions.get_mut(key).unwrap();
        session.version = inner.last;
        let mut head: serde_json::Value = serde_json::from_str(&session.head).unwrap();
        head["writer"] = "somebody else".into();
        session.head = head.to_string();
    }
}

impl ConversationStore for Memory {
    async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let mut inner = self.inner();
        inner.loads += 1;
        if inner.is_down {
            Err(StoreError::database("down"))
        } else {
            let found = inner.sessions.get(key).cloned();
            Ok(found.map(|mut stored| {
                stored.entries.drain(..from.min(stored.entries.len()));
                stored
            }))
        }
    }

    async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        let inner = &mut *self.inner();
        if inner.is_down {
            return Err(StoreError::database("down"));
        }
        if inner.sessions.get(key).map_or(0, |found| found.version) != expected {
            return Err(StoreError::Conflict { expected });
        }
        inner.last += 1;
        inner.appends.push(append.clone());
        let session = inner.sessions.entry(key.clone()).or_default();
        session.version = inner.last;
        session.head = append.head;
        session.entries.truncate(append.from);
        session.entries.extend(append.entries);
        if inner.is_unsure {
            Err(StoreError::database("the connection broke"))
        } else {
            Ok(inner.last)
        }
    }

    async fn list(&self, _: &ConversationQuery) -> Result<Vec<ConversationInfo>, StoreError> {
        Ok(Vec::new())
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        Ok(self.inner().sessions.remove(key).is_some())
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
}
