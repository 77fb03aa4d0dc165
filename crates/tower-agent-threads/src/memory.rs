use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tower_agent::error::BoxError;

use crate::key::ThreadKey;
use crate::lock::lock;
use crate::query::{ThreadInfo, ThreadQuery};
use crate::store::ThreadStore;
use crate::thread::Thread;

/// Keeps threads in memory, within limits. The default of a server.
///
/// If the store is full, it evicts the least recently used thread without open interrupts and
/// without an active run, and then threads of the principal that needs the room: first those with
/// open interrupts, last those with an active run. A question of one principal is never evicted for
/// another: a thread that finds no room is not saved, and its run fails. A principal has limits of
/// its own, too, within which only its own threads are evicted. All threads without a principal
/// count as those of one, which only the limits of the store apply to.
///
/// The 256 idle threads that were used last are kept as they are, and all others as JSON, which
/// takes less than half the memory: the next run in one of them begins with reading it.
///
/// An evicted thread is [unknown](crate#rules) to the server: the next message is read as the
/// client reports it, and answers to interrupts are rejected.
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

/// The number of idle threads that are not packed: those of users who are likely to go on.
const UNPACKED: usize = 256;

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
    /// The number of idle threads that are not packed.
    unpacked: usize,
    /// The use up to which idle threads are packed.
    packed_to: u64,
}

/// Threads that share limits.
#[derive(Default)]
struct Group {
    /// In the order in which they are evicted.
    order: BTreeMap<Rank, ThreadKey>,
    bytes: usize,
}

/// The place of a thread in the order of evictions: idle, waiting, running threads, each by last
/// use.
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
    form: Form,
    version: u64,
    updated_at: SystemTime,
    is_waiting: bool,
    size: usize,
    rank: Rank,
}

#[derive(Clone)]
enum Form {
    Whole(Box<Thread>),
    /// Whole for good: its JSON cannot be read back.
    Unpackable(Box<Thread>),
    /// As JSON.
    Packed(Arc<[u8]>),
}

impl Form {
    fn thread(self) -> Result<Thread, serde_json::Error> {
        match self {
            Self::Whole(thread) | Self::Unpackable(thread) => Ok(*thread),
            Self::Packed(json) => serde_json::from_slice(&json),
        }
    }
}

/// Returns a thread as JSON, unless that cannot be read back: a state may be nested too deeply.
fn packed(thread: Thread) -> Form {
    match serde_json::to_vec(&thread) {
        Ok(json) if serde_json::from_slice::<Thread>(&json).is_ok() => Form::Packed(json.into()),
        _ => Form::Unpackable(Box::new(thread)),
    }
}

impl HeldThread {
    fn is_unpacked(&self) -> bool {
        self.rank.activity == Activity::Idle && matches!(self.form, Form::Whole(_))
    }

    fn info(&self, key: &ThreadKey) -> ThreadInfo {
        ThreadInfo::new(key.clone(), self.updated_at, self.is_waiting)
    }
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
    /// Creates a store for 10,000 threads and 256 MiB, of which a principal has at most 1,000
    /// threads and 32 MiB.
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

    /// Sets the approximate maximum size of the threads of one principal in bytes. Defaults to 32
    /// MiB.
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

    /// Holds a thread if the version is as expected.
    fn hold(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        let mut held = lock(&self.held);
        // A thread that is unknown, or was evicted during the run, has version 0.
        let found = held.threads.get(key);
        if found.map_or(0, |one| one.version) != expected {
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
        let kept = HeldThread {
            version: thread.version,
            updated_at: thread.updated_at(),
            is_waiting: thread.is_waiting(),
            size,
            rank: Rank { activity, used },
            form: Form::Whole(Box::new(thread)),
        };
        held.insert(key, kept);
        held.shrink(&key.principal, self.limits, self.of_principal);
        // Messages of an idle thread may go, but nobody could answer a lost question.
        if activity != Activity::Idle && !held.threads.contains_key(key) {
            return Err("the store is full of threads with open interrupts or active runs".into());
        }
        Ok(true)
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
        self.unpacked += usize::from(held.is_unpacked());
        let owner = self.owners.entry(key.principal.clone()).or_default();
        for group in [&mut self.all, owner] {
            group.order.insert(held.rank, key.clone());
            group.bytes += held.size;
        }
        self.threads.insert(key.clone(), held);
    }

    fn remove(&mut self, key: &ThreadKey) -> Option<HeldThread> {
        let gone = self.threads.remove(key)?;
        self.unpacked -= usize::from(gone.is_unpacked());
        self.all.remove(&gone);
        if let Some(owner) = self.owners.get_mut(&key.principal) {
            owner.remove(&gone);
            if owner.order.is_empty() {
                self.owners.remove(&key.principal);
            }
        }
        Some(gone)
    }

    /// Returns the idle thread to be packed next, if too many are not.
    fn next_to_pack(&mut self) -> Option<(ThreadKey, Thread)> {
        if self.unpacked <= UNPACKED {
            return None;
        }
        let from = Rank {
            activity: Activity::Idle,
            used: self.packed_to + 1,
        };
        let idle = self.all.order.range(from..);
        for (rank, key) in idle.take_while(|(rank, _)| rank.activity == Activity::Idle) {
            self.packed_to = rank.used;
            if let Some(held) = self.threads.get(key)
                && let Form::Whole(thread) = &held.form
            {
                return Some((key.clone(), Thread::clone(thread)));
            }
        }
        None
    }

    /// Keeps an idle thread in this form, unless it has another version since.
    fn pack(&mut self, key: &ThreadKey, version: u64, form: Form) {
        let Some(held) = self.threads.get_mut(key) else {
            return;
        };
        if held.version == version && held.is_unpacked() {
            held.form = form;
            self.unpacked -= 1;
        }
    }

    fn evict(&mut self, key: &ThreadKey) {
        self.remove(key);
        tracing::debug!(thread = ?key.thread, "evicted a thread: the store is full");
    }

    /// Evicts threads until the others are within the limits, for a thread that this principal has
    /// saved.
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
        let form = {
            let mut held = lock(&self.held);
            let Some(mut found) = held.remove(key) else {
                return Ok(None);
            };
            // A load counts as a use: it starts a run, which needs the thread at its end.
            found.rank.used = held.next_use();
            let form = found.form.clone();
            held.insert(key, found);
            form
        };
        // Read without the lock, as others wait for it.
        Ok(Some(form.thread()?))
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        if !self.hold(key, thread, expected)? {
            return Ok(false);
        }
        // One at most has become idle by this save. Written without the lock, as others wait for
        // it.
        let idle = lock(&self.held).next_to_pack();
        if let Some((key, thread)) = idle {
            let version = thread.version;
            let form = packed(thread);
            lock(&self.held).pack(&key, version, form);
        }
        Ok(true)
    }

    async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        let held = lock(&self.held);
        let all = held.threads.iter().map(|(key, one)| one.info(key));
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
