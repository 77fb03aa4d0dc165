use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;

use crate::key::ConversationKey;
use crate::lock::lock;

/// The conversations to which this process is writing, so that the next run of one waits for what
/// the last one leaves behind.
#[derive(Clone, Default)]
pub(crate) struct Busy(Arc<Mutex<HashMap<ConversationKey, Arc<CancellationToken>>>>);

impl Busy {
    /// Notes a write, until the guard is dropped.
    pub(crate) fn write(&self, key: ConversationKey) -> Writing {
        let done = Arc::new(CancellationToken::new());
        self.map().insert(key.clone(), done.clone());
        Writing {
            busy: self.clone(),
            key,
            done,
        }
    }

    /// Waits until nothing is written to the conversation.
    pub(crate) async fn wait_for(&self, key: &ConversationKey) {
        loop {
            // The lock is free again before the wait, and a later write may have begun after it:
            // look again.
            let Some(done) = self.map().get(key).cloned() else {
                return;
            };
            done.cancelled().await;
        }
    }

    /// Waits until nothing is written.
    pub(crate) async fn wait(&self) {
        loop {
            let Some(done) = self.map().values().next().cloned() else {
                return;
            };
            done.cancelled().await;
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<ConversationKey, Arc<CancellationToken>>> {
        lock(&self.0)
    }
}

/// A write that is under way, until it is dropped.
pub(crate) struct Writing {
    busy: Busy,
    key: ConversationKey,
    done: Arc<CancellationToken>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut map = self.busy.map();
        // A later write of the conversation may have replaced the entry by its own, which must
        // stay.
        if map
            .get(&self.key)
            .is_some_and(|done| Arc::ptr_eq(done, &self.done))
        {
            map.remove(&self.key);
        }
        // Waiters look into the map as soon as they wake.
        drop(map);
        self.done.cancel();
    }
}
