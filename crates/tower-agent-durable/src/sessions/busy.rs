use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;

use super::key::SessionKey;
use crate::lock::lock;

/// The sessions to which this process is writing, so that the next run of a session waits for what
/// the last one leaves behind.
#[derive(Clone, Default)]
pub(super) struct Busy(Arc<Mutex<HashMap<SessionKey, Arc<CancellationToken>>>>);

impl Busy {
    /// Notes a write, until the guard is dropped.
    pub(super) fn write(&self, key: SessionKey) -> Writing {
        let done = Arc::new(CancellationToken::new());
        self.map().insert(key.clone(), done.clone());
        Writing {
            busy: self.clone(),
            key,
            done,
        }
    }

    /// Waits until nothing is written to the session.
    pub(super) async fn wait_for(&self, key: &SessionKey) {
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
    pub(super) async fn wait(&self) {
        loop {
            let Some(done) = self.map().values().next().cloned() else {
                return;
            };
            done.cancelled().await;
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<CancellationToken>>> {
        lock(&self.0)
    }
}

/// A write that is under way, until it is dropped.
pub(super) struct Writing {
    busy: Busy,
    key: SessionKey,
    done: Arc<CancellationToken>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut map = self.busy.map();
        // A later write of the session may have replaced the entry by its own, which must stay.
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
