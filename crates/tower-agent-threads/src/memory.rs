use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Mutex;

use tower_agent::error::BoxError;

use crate::lock::lock;
use crate::store::{ThreadKey, ThreadStore};
use crate::thread::Thread;

/// Keeps threads in memory, within limits. The default of a server.
///
/// If the store is full, it evicts the least recently used thread: first among idle threads, then
/// among those with open interrupts, last among those with an active run. A thread larger than the
/// whole limit is not saved, and its run fails. An evicted thread is [unknown](crate#rules) to the
/// server: the next message is read as the client reports it, and answers to interrupts are
/// rejected.
///
/// ```
/// use tower_agent_threads::{MemoryThreads, Threads};
///
/// let store = MemoryThreads::new().max_threads(100).max_bytes(16 << 20);
/// let threads = Threads::new(store);
/// # drop(threads);
/// ```
pub struct MemoryThreads {
    max_threads: usize,
    max_bytes: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    threads: HashMap<ThreadKey, HeldThread>,
    /// In the order in which they are evicted: idle, waiting, running threads, each by last use.
    order: BTreeMap<Rank, ThreadKey>,
    bytes: usize,
    uses: u64,
}

type Rank = (bool, bool, u64);

struct HeldThread {
    thread: Thread,
    size: usize,
    used: u64,
}

impl HeldThread {
    fn rank(&self) -> Rank {
        (
            self.thread.is_running(),
            self.thread.is_waiting(),
            self.used,
        )
    }
}

impl MemoryThreads {
    /// Creates a store for 10,000 threads and 256 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max_threads: 10_000,
            max_bytes: 256 << 20,
            held: Mutex::default(),
        }
    }

    /// Sets the maximum number of threads. Defaults to 10,000.
    #[must_use]
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = threads;
        self
    }

    /// Sets the approximate maximum size of all threads in bytes. Defaults to 256 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.held).threads.len()
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryThreads {
    fn default() -> Self {
        Self::new()
    }
}

impl Held {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Evicts threads until the others are within the limits.
    fn shrink(&mut self, max_threads: usize, max_bytes: usize) {
        while self.threads.len() > max_threads || self.bytes > max_bytes {
            let Some((_, key)) = self.order.pop_first() else {
                return;
            };
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &ThreadKey) {
        if let Some(gone) = self.threads.remove(key) {
            self.order.remove(&gone.rank());
            self.bytes -= gone.size;
            tracing::debug!(thread = ?key.thread, "evicted a thread: the store is full");
        }
    }
}

impl ThreadStore for MemoryThreads {
    async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        let mut held = lock(&self.held);
        // A load counts as a use: it starts a run, which needs the thread at its end.
        let used = held.next_use();
        let Held { threads, order, .. } = &mut *held;
        Ok(threads.get_mut(key).map(|one| {
            order.remove(&one.rank());
            one.used = used;
            order.insert(one.rank(), key.clone());
            one.thread.clone()
        }))
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        let mut held = lock(&self.held);
        // A thread that is unknown, or was evicted during the run, has version 0.
        let found = held.threads.get(key);
        if found.map_or(0, |one| one.thread.version) != expected {
            return Ok(false);
        }
        let size = thread.size();
        if size > self.max_bytes {
            // It does not evict all others for one thread.
            held.remove(key);
            return Err(format!(
                "the thread takes {size} bytes, but the limit of the store is {}",
                self.max_bytes
            )
            .into());
        }
        let used = held.next_use();
        let new = HeldThread { thread, size, used };
        held.order.insert(new.rank(), key.clone());
        if let Some(old) = held.threads.insert(key.clone(), new) {
            held.order.remove(&old.rank());
            held.bytes -= old.size;
        }
        held.bytes += size;
        held.shrink(self.max_threads, self.max_bytes);
        Ok(true)
    }
}

impl fmt::Debug for MemoryThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryThreads")
            .field("max_threads", &self.max_threads)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
