//! The stored form of a thread, and its lease.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::log::Log;
use super::saving::Saving;
use super::thread::Thread;
use crate::cache::{Cache, Entries, Known};
use crate::error::StoreError;
use crate::head::{Format, Head};
use crate::key::ConversationKey;
use crate::lease::{Lease, Record};
use crate::policy::Policy;
use crate::store::ConversationStore;

pub(crate) const FORMAT: Format = Format {
    kind: Policy::Thread.kind(),
    number: 1,
};

/// Threads that this process has used last.
pub(crate) type ThreadCache = Cache<Log, Thread>;

impl Entries for Log {
    fn count(&self) -> usize {
        self.stored()
    }

    fn add(&mut self, entry: &str) -> Result<(), StoreError> {
        self.read(entry)
    }
}

impl Thread {
    /// Loads a thread; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, and if what it has is no thread, or that of a newer
    /// version of this crate.
    pub async fn load(
        store: &impl ConversationStore,
        key: &ConversationKey,
    ) -> Result<Option<Self>, StoreError> {
        let Some(stored) = store.load(key, 0).await? else {
            return Ok(None);
        };
        Known::read(&stored, FORMAT).map(|known| Some(thread_of(known)))
    }
}

/// Returns the thread of a stored conversation.
pub(crate) fn thread_of(known: Known<Log, Thread>) -> Thread {
    Thread {
        version: known.version,
        claim: known.head.claim,
        log: known.entries,
        ..known.head.body
    }
}

/// Returns the write of a thread, and of what its log has from this item on.
pub(crate) fn record(thread: &Thread, from: usize) -> Result<Record, StoreError> {
    let new = thread.log.write_from(from)?;
    Record::new(thread, from, new, thread.is_waiting())
}

/// The thread of a run.
#[derive(Clone)]
pub(crate) struct ThreadLease {
    lease: Lease,
    threads: ThreadCache,
    /// The entries as they are stored. Locked during a save, so that saves take turns.
    written: Arc<Mutex<Log>>,
}

impl ThreadLease {
    pub(crate) fn new(lease: Lease, threads: ThreadCache, claimed: &Thread) -> Self {
        Self {
            lease,
            threads,
            written: Arc::new(Mutex::new(claimed.log.clone())),
        }
    }

    /// Returns the save of the thread as the run has left it. With the last one the run gives the
    /// thread up.
    pub(crate) fn save(&self, mut thread: Thread, is_last: bool) -> Saving {
        let this = self.clone();
        let save = async move {
            let mut written = this.written.lock().await;
            let same = written.common(&thread.log);
            let record = record(&thread, same)?;
            if is_last {
                let stored = this.lease.end(record).await?;
                let writer = this.lease.name().clone();
                let log = std::mem::take(&mut thread.log);
                let known = Known {
                    version: stored.version,
                    head: Head::new(FORMAT, writer, stored.entries, None, thread),
                    entries: log,
                };
                this.threads.keep(this.lease.key(), known);
            } else {
                this.lease.write(record).await?;
                *written = thread.log;
            }
            Ok(())
        };
        Saving::new(save, self.lease.clone())
    }
}
