use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};

use tower_agent::error::BoxError;

use crate::key::ThreadKey;
use crate::lock::lock;
use crate::query::{ThreadInfo, ThreadQuery};
use crate::store::ThreadStore;
use crate::thread::Thread;

/// Keeps threads in memory, within limits. The default of a server.
///
/// If the store is full, it evicts the least recently used thread without open interrupts and without
/// an active run, and then threads of the principal that needs the room: first those with open
/// interrupts, last those with an active run. A question of one principal is never evicted for
/// another: a thread that finds no room is not saved, and its run fails. A principal has limits of its
/// own, too, within which only its own threads are evicted. All threads without a principal count as
/// those of one, which only the limits of the store apply to.
///
/// An evicted thread is [unknown](crate#rules) to the server: the next message is read as the client
/// reports it, and answers to interrupts are rejected.
///
/// ```
/// use tower_agent_threads::{MemoryThreads, Threads};
///
/// let store = MemoryThreads::new()
///     .max_threads(100)
///     .max_bytes(16 << 20)
///     .max_threads_of_principal(10);
/// let threads = Threads::new(store);
/// # drop(threads);
/// ```
pub struct MemoryThreads {
    limits: Limits,
    of_principal: Limits,
    held: Mutex<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    threads: usize,
    bytes: usize,
}

#[derive(Default)]
struct Held {
    threads: HashMap<ThreadKey, HeldThread>,
    all: Group,
    owners: HashMap<Option<Arc<str>>, Group>,
    uses: u64,
}

/// Threads that share limits.
#[derive(Default)]
struct Group {
    /// In the order in which they are evicted.
    order: BTreeMap<Rank, ThreadKey>,
    bytes: usize,
}

/// The place of a thread in the order of evictions: idle, waiting, running threads, each by last use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    activity: Activity,
    used: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Activity {
    Idle,
    Waiting,
    Running,
}

struct HeldThread {
    thread: Thread,
    size: usize,
    rank: Rank,
}

impl Activity {
    fn of(thread: &Thread) -> Self {
        if thread.is_running() {
            Self::Running
        } else if thread.is_waiting() {
            Self::Waiting
        } else {
            Self::Idle
        }
    }
}

impl MemoryThreads {
    /// Creates a store for 10,000 threads and 256 MiB, of which a principal has at most 1,000 threads
    /// and 32 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            limits: Limits {
                threads: 10_000,
                bytes: 256 << 20,
            },
            of_principal: Limits {
                threads: 1_000,
                bytes: 32 << 20,
            },
            held: Mutex::default(),
        }
    }

    /// Sets the maximum number of threads. Defaults to 10,000.
    #[must_use]
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.limits.threads = threads;
        self
    }

    /// Sets the approximate maximum size of all threads in bytes. Defaults to 256 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Sets the maximum number of threads of one principal. Defaults to 1,000.
    #[must_use]
    pub fn max_threads_of_principal(mut self, threads: usize) -> Self {
        self.of_principal.threads = threads;
        self
    }

    /// Sets the approximate maximum size of the threads of one principal in bytes. Defaults to 32 MiB.
    #[must_use]
    pub fn max_bytes_of_principal(mut self, bytes: usize) -> Self {
        self.of_principal.bytes = bytes;
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

    /// Returns the largest size that a thread under this key may have.
    fn max_size(&self, key: &ThreadKey) -> usize {
        match key.principal {
            Some(_) => self.limits.bytes.min(self.of_principal.bytes),
            None => self.limits.bytes,
        }
    }
}

impl Default for MemoryThreads {
    fn default() -> Self {
        Self::new()
    }
}

impl Limits {
    fn are_exceeded_by(self, group: &Group) -> bool {
        group.order.len() > self.threads || group.bytes > self.bytes
    }
}

impl Held {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn insert(&mut self, key: &ThreadKey, held: HeldThread) {
        self.remove(key);
        let owner = self.owners.entry(key.principal.clone()).or_default();
        for group in [&mut self.all, owner] {
            group.order.insert(held.rank, key.clone());
            group.bytes += held.size;
        }
        self.threads.insert(key.clone(), held);
    }

    fn remove(&mut self, key: &ThreadKey) -> Option<HeldThread> {
        let gone = self.threads.remove(key)?;
        self.all.remove(&gone);
        if let Some(owner) = self.owners.get_mut(&key.principal) {
            owner.remove(&gone);
            if owner.order.is_empty() {
                self.owners.remove(&key.principal);
            }
        }
        Some(gone)
    }

    fn evict(&mut self, key: &ThreadKey) {
        self.remove(key);
        tracing::debug!(thread = ?key.thread, "evicted a thread: the store is full");
    }

    /// Evicts threads until the others are within the limits, for a thread that this principal has saved.
    fn shrink(&mut self, principal: &Option<Arc<str>>, limits: Limits, of_principal: Limits) {
        while principal.is_some()
            && let Some(owner) = self.owners.get(principal)
            && of_principal.are_exceeded_by(owner)
            && let Some((_, key)) = owner.first()
        {
            self.evict(&key);
        }
        while limits.are_exceeded_by(&self.all) {
            // Of another principal only what nobody waits for.
            let idle = self
                .all
                .first()
                .filter(|(rank, _)| rank.activity == Activity::Idle);
            let own = || self.owners.get(principal).and_then(Group::first);
            let Some((_, key)) = idle.or_else(own) else {
                return;
            };
            self.evict(&key);
        }
    }
}

impl Group {
    fn first(&self) -> Option<(Rank, ThreadKey)> {
        let (rank, key) = self.order.first_key_value()?;
        Some((*rank, key.clone()))
    }

    fn remove(&mut self, held: &HeldThread) {
        self.order.remove(&held.rank);
        self.bytes -= held.size;
    }
}

impl ThreadStore for MemoryThreads {
    async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        let mut held = lock(&self.held);
        let Some(mut found) = held.remove(key) else {
            return Ok(None);
        };
        // A load counts as a use: it starts a run, which needs the thread at its end.
        found.rank.used = held.next_use();
        let thread = found.thread.clone();
        held.insert(key, found);
        Ok(Some(thread))
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        let mut held = lock(&self.held);
        // A thread that is unknown, or was evicted during the run, has version 0.
        let found = held.threads.get(key);
        if found.map_or(0, |one| one.thread.version) != expected {
            return Ok(false);
        }
        let size = thread.size();
        let max_size = self.max_size(key);
        if size > max_size {
            // It does not evict all others for one thread.
            held.remove(key);
            return Err(format!(
                "the thread takes {size} bytes, but the limit of the store is {max_size}"
            )
            .into());
        }
        let activity = Activity::of(&thread);
        let used = held.next_use();
        let rank = Rank { activity, used };
        held.insert(key, HeldThread { thread, size, rank });
        held.shrink(&key.principal, self.limits, self.of_principal);
        // Messages of an idle thread may go, but nobody could answer a lost question.
        if activity != Activity::Idle && !held.threads.contains_key(key) {
            return Err("the store is full of threads with open interrupts or active runs".into());
        }
        Ok(true)
    }

    async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        let held = lock(&self.held);
        let all = held
            .threads
            .iter()
            .map(|(key, one)| one.thread.info(key.clone()));
        let mut page: Vec<ThreadInfo> = all.filter(|thread| query.selects(thread)).collect();
        page.sort_by(|one, other| other.position().cmp(&one.position()));
        page.truncate(usize::try_from(query.limit).unwrap_or(usize::MAX));
        Ok(page)
    }

    async fn delete(&self, key: &ThreadKey) -> Result<bool, BoxError> {
        Ok(lock(&self.held).remove(key).is_some())
    }
}

impl fmt::Debug for MemoryThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryThreads")
            .field("limits", &self.limits)
            .field("of_principal", &self.of_principal)
            .finish_non_exhaustive()
    }
}
