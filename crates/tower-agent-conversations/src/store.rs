use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::BoxFuture;

use crate::busy::Busy;
use crate::error::StoreError;
use crate::key::ConversationKey;
use crate::policy::Policy;
use crate::query::{ConversationInfo, ConversationQuery};

/// Stores conversations, each as a head and a list of entries.
///
/// Both are JSON texts that a store keeps as they are: [`SessionLayer`](crate::SessionLayer) and
/// [`Threads`](crate::Threads) write and read them. The head is small and is replaced with every
/// write. Entries are only added; a write may put new entries in the place of the last ones.
///
/// [`MemoryConversations`](crate::MemoryConversations) is one, and
/// [`tower-agent-durable`](https://docs.rs/tower-agent-durable) has SQLite and PostgreSQL.
///
/// # Writing one of your own
///
/// - [`append`](Self::append) is a compare-and-swap, and atomic: all of it is written, or nothing.
///   Two writers with the same expected version never both succeed, in any process. This is what
///   lets only one of two concurrent runs of a conversation start, and an answer count only once.
/// - What was written stays, also if the process is killed.
/// - A version is greater than 0, and is never used twice for one key, not even after the
///   conversation was deleted: otherwise a slow writer could write to a conversation that is not
///   the one it read.
/// - An expired conversation does not exist.
/// - The cost of `append` depends on what is new, and `load` reads one consistent state.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use tokio::sync::Mutex;
/// use tower_agent_conversations::{
///     Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore, StoreError,
///     StoredConversation,
/// };
///
/// /// In memory, without expiry.
/// #[derive(Default)]
/// struct Memory(Mutex<(u64, HashMap<ConversationKey, StoredConversation>)>);
///
/// impl ConversationStore for Memory {
///     async fn load(
///         &self,
///         key: &ConversationKey,
///         from: usize,
///     ) -> Result<Option<StoredConversation>, StoreError> {
///         let found = self.0.lock().await.1.get(key).cloned();
///         Ok(found.map(|mut stored| {
///             stored.entries.drain(..from.min(stored.entries.len()));
///             stored
///         }))
///     }
///
///     async fn append(
///         &self,
///         key: &ConversationKey,
///         expected: u64,
///         append: Append,
///     ) -> Result<u64, StoreError> {
///         let (last, all) = &mut *self.0.lock().await;
///         if all.get(key).map_or(0, |found| found.version) != expected {
///             return Err(StoreError::Conflict { expected });
///         }
///         *last += 1;
///         let stored = all.entry(key.clone()).or_default();
///         stored.version = *last;
///         stored.head = append.head;
///         stored.entries.truncate(append.from);
///         stored.entries.extend(append.entries);
///         Ok(*last)
///     }
///
///     async fn list(
///         &self,
///         query: &ConversationQuery,
///     ) -> Result<Vec<ConversationInfo>, StoreError> {
///         # drop(query);
///         todo!()
///     }
///
///     async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
///         Ok(self.0.lock().await.1.remove(key).is_some())
///     }
///
///     async fn delete_expired(&self) -> Result<u64, StoreError> {
///         Ok(0)
///     }
/// }
/// ```
pub trait ConversationStore: Send + Sync + 'static {
    /// Returns the conversation with its entries from this position on, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> impl Future<Output = Result<Option<StoredConversation>, StoreError>> + Send;

    /// Writes to the conversation if its version is `expected`; 0 means that there is none, and
    /// creates it. Returns the new version.
    ///
    /// # Errors
    ///
    /// Fails with [`Conflict`](StoreError::Conflict) if the version is another one: nothing was
    /// written. After any other error it may be unknown whether something was.
    fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns a page of the conversations, by the time of their last write in milliseconds and
    /// then by their keys, the latest first. A conversation that is written between two pages moves
    /// to the front, and is missing in the second. A page with fewer than the query's limit is the
    /// last one.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn list(
        &self,
        query: &ConversationQuery,
    ) -> impl Future<Output = Result<Vec<ConversationInfo>, StoreError>> + Send;

    /// Deletes the conversation with all its entries; returns whether there was one. A run that is
    /// active in it starts no more calls once it has tried to renew its lease.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    fn delete(
        &self,
        key: &ConversationKey,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes expired conversations, and returns their number. Call it periodically.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    fn delete_expired(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Deletes all conversations of a user, of all applications; returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read or written. Some conversations may be deleted then.
    fn delete_of_user(&self, user: &str) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async move {
            let query = ConversationQuery::new().user(user);
            let mut deleted = 0;
            loop {
                // Always the first page: what was on it before is gone.
                let page = self.list(&query).await?;
                if page.is_empty() {
                    return Ok(deleted);
                }
                for found in page {
                    deleted += u64::from(self.delete(&found.key).await?);
                }
            }
        }
    }
}

/// A conversation as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredConversation {
    /// The version.
    pub version: u64,
    /// The head, as JSON.
    pub head: String,
    /// The entries, as JSON, oldest first, from the position that was asked for.
    pub entries: Vec<String>,
}

impl StoredConversation {
    /// Creates a conversation without entries.
    pub fn new(version: u64, head: impl Into<String>) -> Self {
        Self {
            version,
            head: head.into(),
            entries: Vec::new(),
        }
    }

    /// Sets the entries.
    #[must_use]
    pub fn entries(mut self, entries: Vec<String>) -> Self {
        self.entries = entries;
        self
    }
}

/// One atomic write to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Append {
    /// The new head.
    pub head: String,
    /// The position of the first new entry, at most the number of entries: a gap is an error.
    /// Entries from there on are replaced.
    pub from: usize,
    /// The new entries.
    pub entries: Vec<String>,
    /// The kind of the conversation, which says what reads it: `session` for
    /// [`SessionLayer`](crate::SessionLayer), `thread` for [`Threads`](crate::Threads).
    pub kind: Arc<str>,
    /// The conversation has open interrupts.
    pub is_waiting: bool,
    /// The time until which a run has the conversation, if one has.
    pub leased_until: Option<SystemTime>,
    /// The time at which the conversation expires, if it does.
    pub expires_at: Option<SystemTime>,
}

impl Append {
    /// Creates a write of a head without entries; `from` is the number of entries that stay. The
    /// conversation is of kind `session`, without open interrupts, and no run has it.
    pub fn new(head: impl Into<String>, from: usize) -> Self {
        Self {
            head: head.into(),
            from,
            entries: Vec::new(),
            kind: Policy::Session.kind().into(),
            is_waiting: false,
            leased_until: None,
            expires_at: None,
        }
    }

    /// Sets the new entries.
    #[must_use]
    pub fn entries(mut self, entries: Vec<String>) -> Self {
        self.entries = entries;
        self
    }

    /// Sets the kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets whether the conversation has open interrupts.
    #[must_use]
    pub fn waiting(mut self, is_waiting: bool) -> Self {
        self.is_waiting = is_waiting;
        self
    }

    /// Sets until when a run has the conversation.
    #[must_use]
    pub fn leased_until(mut self, until: Option<SystemTime>) -> Self {
        self.leased_until = until;
        self
    }

    /// Sets when the conversation expires. Defaults to never.
    #[must_use]
    pub fn expires_at(mut self, at: Option<SystemTime>) -> Self {
        self.expires_at = at;
        self
    }
}

impl<S: ConversationStore> ConversationStore for Arc<S> {
    fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> impl Future<Output = Result<Option<StoredConversation>, StoreError>> + Send {
        (**self).load(key, from)
    }

    fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).append(key, expected, append)
    }

    fn list(
        &self,
        query: &ConversationQuery,
    ) -> impl Future<Output = Result<Vec<ConversationInfo>, StoreError>> + Send {
        (**self).list(query)
    }

    fn delete(
        &self,
        key: &ConversationKey,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        (**self).delete(key)
    }

    fn delete_expired(&self) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).delete_expired()
    }

    fn delete_of_user(&self, user: &str) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).delete_of_user(user)
    }
}

/// A store of any type, and the writes to it that are made in tasks.
#[derive(Clone)]
pub(crate) struct BoxStore {
    store: Arc<dyn ErasedStore>,
    busy: Busy,
}

trait ErasedStore: Send + Sync {
    fn load<'a>(
        &'a self,
        key: &'a ConversationKey,
        from: usize,
    ) -> BoxFuture<'a, Result<Option<StoredConversation>, StoreError>>;
    fn append<'a>(
        &'a self,
        key: &'a ConversationKey,
        expected: u64,
        append: Append,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;
    fn list<'a>(
        &'a self,
        query: &'a ConversationQuery,
    ) -> BoxFuture<'a, Result<Vec<ConversationInfo>, StoreError>>;
}

impl<S: ConversationStore> ErasedStore for S {
    fn load<'a>(
        &'a self,
        key: &'a ConversationKey,
        from: usize,
    ) -> BoxFuture<'a, Result<Option<StoredConversation>, StoreError>> {
        Box::pin(ConversationStore::load(self, key, from))
    }

    fn append<'a>(
        &'a self,
        key: &'a ConversationKey,
        expected: u64,
        append: Append,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(ConversationStore::append(self, key, expected, append))
    }

    fn list<'a>(
        &'a self,
        query: &'a ConversationQuery,
    ) -> BoxFuture<'a, Result<Vec<ConversationInfo>, StoreError>> {
        Box::pin(ConversationStore::list(self, query))
    }
}

impl BoxStore {
    pub(crate) fn new(store: impl ConversationStore) -> Self {
        Self {
            store: Arc::new(store),
            busy: Busy::default(),
        }
    }

    /// Returns the conversations to which tasks are writing.
    pub(crate) fn busy(&self) -> &Busy {
        &self.busy
    }

    pub(crate) async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        self.store.load(key, from).await
    }

    pub(crate) async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        self.store.append(key, expected, append).await
    }

    pub(crate) async fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, StoreError> {
        self.store.list(query).await
    }
}

impl fmt::Debug for BoxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxStore").finish_non_exhaustive()
    }
}
