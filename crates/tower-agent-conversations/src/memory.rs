use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::error::StoreError;
use crate::key::ConversationKey;
use crate::lock::lock;
use crate::query::{ConversationInfo, ConversationQuery};
use crate::store::{Append, ConversationStore, StoredConversation};

/// Keeps conversations in memory, within limits. The default of a server.
///
/// If the store is full, it evicts the least recently used conversation without open interrupts and
/// without an active run, and then conversations of the user that needs the room: first those with
/// open interrupts, last those with an active run. A question of one user is never evicted for
/// another: a conversation that finds no room is not written, and its run fails. A user has limits
/// of its own, too, within which only its own conversations are evicted. All conversations without
/// a user count as those of one, which only the limits of the store apply to.
///
/// An evicted thread is [unknown](crate#rules) to the server: the next message is read as the
/// client reports it, and answers to interrupts are rejected.
///
/// ```
/// use tower_agent_conversations::{MemoryConversations, Threads};
///
/// let store = MemoryConversations::new()
///     .max_conversations(100)
///     .max_bytes(16 << 20)
///     .max_conversations_of_user(10);
/// let threads = Threads::new(store);
/// # drop(threads);
/// ```
pub struct MemoryConversations {
    limits: Limits,
    of_user: Limits,
    held: Mutex<HeldConversations>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    conversations: usize,
    bytes: usize,
}

#[derive(Default)]
struct HeldConversations {
    conversations: HashMap<ConversationKey, HeldConversation>,
    all: Group,
    users: HashMap<Arc<str>, Group>,
    uses: u64,
    /// The latest version of any conversation.
    version: u64,
}

/// Conversations that share limits.
#[derive(Default)]
struct Group {
    /// In the order in which they are evicted.
    order: BTreeMap<Rank, ConversationKey>,
    bytes: usize,
}

/// The place of a conversation in the order of evictions: idle, waiting, running ones, each by last
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

struct HeldConversation {
    stored: StoredConversation,
    kind: Arc<str>,
    updated_at: SystemTime,
    expires_at: Option<SystemTime>,
    is_waiting: bool,
    size: usize,
    rank: Rank,
}

/// The size of an entry besides its text, in bytes.
const ENTRY: usize = size_of::<String>() + 16;

impl HeldConversation {
    fn info(&self, key: &ConversationKey) -> ConversationInfo {
        ConversationInfo::new(key.clone(), self.stored.version, self.updated_at)
            .kind(self.kind.clone())
            .waiting(self.is_waiting)
            .expires_at(self.expires_at)
    }

    fn has_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

impl Activity {
    fn of(append: &Append) -> Self {
        let now = SystemTime::now();
        if append.leased_until.is_some_and(|until| until > now) {
            Self::Running
        } else if append.is_waiting {
            Self::Waiting
        } else {
            Self::Idle
        }
    }
}

impl MemoryConversations {
    /// Creates a store for 10,000 conversations and 256 MiB, of which a user has at most 1,000
    /// conversations and 32 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            limits: Limits {
                conversations: 10_000,
                bytes: 256 << 20,
            },
            of_user: Limits {
                conversations: 1_000,
                bytes: 32 << 20,
            },
            held: Mutex::default(),
        }
    }

    /// Sets the maximum number of conversations. Defaults to 10,000.
    #[must_use]
    pub fn max_conversations(mut self, conversations: usize) -> Self {
        self.limits.conversations = conversations;
        self
    }

    /// Sets the approximate maximum size of all conversations in bytes. Defaults to 256 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Sets the maximum number of conversations of one user. Defaults to 1,000.
    #[must_use]
    pub fn max_conversations_of_user(mut self, conversations: usize) -> Self {
        self.of_user.conversations = conversations;
        self
    }

    /// Sets the approximate maximum size of the conversations of one user in bytes. Defaults to 32
    /// MiB.
    #[must_use]
    pub fn max_bytes_of_user(mut self, bytes: usize) -> Self {
        self.of_user.bytes = bytes;
        self
    }

    /// Returns the number of conversations.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.held).conversations.len()
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest size that a conversation under this key may have.
    fn max_size(&self, key: &ConversationKey) -> usize {
        if key.user.is_empty() {
            self.limits.bytes
        } else {
            self.limits.bytes.min(self.of_user.bytes)
        }
    }
}

impl Default for MemoryConversations {
    fn default() -> Self {
        Self::new()
    }
}

impl Limits {
    fn are_exceeded_by(self, group: &Group) -> bool {
        group.order.len() > self.conversations || group.bytes > self.bytes
    }
}

impl HeldConversations {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn insert(&mut self, key: &ConversationKey, held: HeldConversation) {
        self.remove(key);
        let user = self.users.entry(key.user.clone()).or_default();
        for group in [&mut self.all, user] {
            group.order.insert(held.rank, key.clone());
            group.bytes += held.size;
        }
        self.conversations.insert(key.clone(), held);
    }

    fn remove(&mut self, key: &ConversationKey) -> Option<HeldConversation> {
        let gone = self.conversations.remove(key)?;
        self.all.remove(&gone);
        if let Some(user) = self.users.get_mut(&key.user) {
            user.remove(&gone);
            if user.order.is_empty() {
                self.users.remove(&key.user);
            }
        }
        Some(gone)
    }

    /// Removes the conversation if it has expired.
    fn expire(&mut self, key: &ConversationKey) {
        let found = self.conversations.get(key);
        if found.is_some_and(|one| one.has_expired(SystemTime::now())) {
            self.remove(key);
        }
    }

    fn evict(&mut self, key: &ConversationKey) {
        self.remove(key);
        tracing::debug!(conversation = ?key.id, "evicted a conversation: the store is full");
    }

    /// Evicts conversations until the others are within the limits, for one that this user has
    /// written.
    fn shrink(&mut self, user: &Arc<str>, limits: Limits, of_user: Limits) {
        while !user.is_empty()
            && let Some(group) = self.users.get(user)
            && of_user.are_exceeded_by(group)
            && let Some((_, key)) = group.first()
        {
            self.evict(&key);
        }
        while limits.are_exceeded_by(&self.all) {
            // A conversation of another user goes only if nobody waits for it.
            let idle = self
                .all
                .first()
                .filter(|(rank, _)| rank.activity == Activity::Idle);
            let own = || self.users.get(user).and_then(Group::first);
            let Some((_, key)) = idle.or_else(own) else {
                return;
            };
            self.evict(&key);
        }
    }
}

impl Group {
    fn first(&self) -> Option<(Rank, ConversationKey)> {
        let (rank, key) = self.order.first_key_value()?;
        Some((*rank, key.clone()))
    }

    fn remove(&mut self, held: &HeldConversation) {
        self.order.remove(&held.rank);
        self.bytes -= held.size;
    }
}

impl ConversationStore for MemoryConversations {
    async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let mut held = lock(&self.held);
        held.expire(key);
        let Some(mut found) = held.remove(key) else {
            return Ok(None);
        };
        // A load counts as a use: it starts a run, which needs the conversation at its end.
        found.rank.used = held.next_use();
        let StoredConversation {
            version,
            head,
            entries,
        } = &found.stored;
        let entries = entries.get(from..).unwrap_or_default().to_vec();
        let stored = StoredConversation::new(*version, head.clone()).entries(entries);
        held.insert(key, found);
        Ok(Some(stored))
    }

    async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        let mut held = lock(&self.held);
        held.expire(key);
        // One that is unknown, or was evicted during the run, has version 0.
        let found = held.conversations.get(key);
        if found.map_or(0, |one| one.stored.version) != expected {
            return Err(StoreError::Conflict { expected });
        }
        let known = found.map_or(0, |one| one.stored.entries.len());
        if append.from > known {
            let message = format!("there is no entry before position {}", append.from);
            return Err(StoreError::data(message));
        }
        let activity = Activity::of(&append);
        let mut held_before = held.remove(key);
        let mut entries = match &mut held_before {
            Some(before) => std::mem::take(&mut before.stored.entries),
            None => Vec::new(),
        };
        let size_of =
            |entries: &[String]| -> usize { entries.iter().map(|entry| entry.len() + ENTRY).sum() };
        let head_size = |stored: &StoredConversation| stored.head.len();
        let before = held_before
            .as_ref()
            .map_or(0, |one| one.size - head_size(&one.stored));
        let kept = before - size_of(&entries[append.from..]);
        let size = kept + size_of(&append.entries) + append.head.len();
        let max_size = self.max_size(key);
        if size > max_size {
            // It does not evict all others for one conversation.
            let message = format!(
                "the conversation takes {size} bytes, but the limit of the store is {max_size}"
            );
            return Err(StoreError::database(message));
        }
        entries.truncate(append.from);
        entries.extend(append.entries);
        held.version += 1;
        let version = held.version;
        let used = held.next_use();
        let conversation = HeldConversation {
            stored: StoredConversation::new(version, append.head).entries(entries),
            kind: append.kind,
            updated_at: SystemTime::now(),
            expires_at: append.expires_at,
            is_waiting: append.is_waiting,
            size,
            rank: Rank { activity, used },
        };
        held.insert(key, conversation);
        held.shrink(&key.user, self.limits, self.of_user);
        // Messages of an idle conversation may go, but nobody could answer a lost question.
        if activity != Activity::Idle && !held.conversations.contains_key(key) {
            let message = "the store is full of conversations with open interrupts or active runs";
            return Err(StoreError::database(message));
        }
        Ok(version)
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, StoreError> {
        let now = SystemTime::now();
        let held = lock(&self.held);
        let all = held.conversations.iter();
        let all = all.filter(|(_, one)| !one.has_expired(now));
        let all = all.map(|(key, one)| one.info(key));
        let mut page: Vec<ConversationInfo> = all.filter(|found| query.selects(found)).collect();
        page.sort_by(|one, other| other.position().cmp(&one.position()));
        page.truncate(usize::try_from(query.limit).unwrap_or(usize::MAX));
        Ok(page)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let mut held = lock(&self.held);
        held.expire(key);
        Ok(held.remove(key).is_some())
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        let now = SystemTime::now();
        let mut held = lock(&self.held);
        let all = held.conversations.iter();
        let expired: Vec<_> = all
            .filter(|(_, one)| one.has_expired(now))
            .map(|(key, _)| key.clone())
            .collect();
        let mut deleted = 0;
        for key in &expired {
            deleted += u64::from(held.remove(key).is_some());
        }
        Ok(deleted)
    }
}

impl fmt::Debug for MemoryConversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryConversations")
            .field("limits", &self.limits)
            .field("of_user", &self.of_user)
            .finish_non_exhaustive()
    }
}
