use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use super::key::SessionKey;
use super::kind::SESSION;
use super::query::{SessionInfo, SessionQuery};
use crate::error::StoreError;

/// Stores sessions, each as a head and a list of entries.
///
/// Both are JSON texts that a store keeps as they are: [`SessionLayer`](crate::SessionLayer) writes
/// them, and [`Session`](crate::Session) reads them. The head is small and is replaced with every
/// write. Entries are only added; a write may put new entries in the place of the last ones.
///
/// # Writing one of your own
///
/// - [`append`](Self::append) is a compare-and-swap, and atomic: all of it is written, or nothing.
///   Two writers with the same expected version never both succeed, in any process.
/// - What was written stays, also if the process is killed.
/// - A version is greater than 0, and is never used twice for one key, not even after the session
///   was deleted: otherwise a slow writer could write to a session that is not the one it read.
/// - An expired session does not exist.
/// - The cost of `append` depends on what is new, and `load` reads one consistent state.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use tokio::sync::Mutex;
/// use tower_agent_durable::{
///     Append, SessionInfo, SessionKey, SessionQuery, SessionStore, StoreError, StoredSession,
/// };
///
/// /// In memory, without expiry.
/// #[derive(Default)]
/// struct Memory(Mutex<(u64, HashMap<SessionKey, StoredSession>)>);
///
/// impl SessionStore for Memory {
///     async fn load(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
///         Ok(self.0.lock().await.1.get(key).cloned())
///     }
///
///     async fn append(
///         &self,
///         key: &SessionKey,
///         expected: u64,
///         append: Append,
///     ) -> Result<u64, StoreError> {
///         let (last, sessions) = &mut *self.0.lock().await;
///         if sessions.get(key).map_or(0, |found| found.version) != expected {
///             return Err(StoreError::Conflict { expected });
///         }
///         *last += 1;
///         let session = sessions.entry(key.clone()).or_default();
///         session.version = *last;
///         session.head = append.head;
///         session.entries.truncate(append.from);
///         session.entries.extend(append.entries);
///         Ok(*last)
///     }
///
///     async fn list(&self, query: &SessionQuery) -> Result<Vec<SessionInfo>, StoreError> {
///         # drop(query);
///         todo!()
///     }
///
///     async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError> {
///         Ok(self.0.lock().await.1.remove(key).is_some())
///     }
///
///     async fn delete_expired(&self) -> Result<u64, StoreError> {
///         Ok(0)
///     }
/// }
/// ```
pub trait SessionStore: Send + Sync + 'static {
    /// Returns the session, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn load(
        &self,
        key: &SessionKey,
    ) -> impl Future<Output = Result<Option<StoredSession>, StoreError>> + Send;

    /// Writes to the session if its version is `expected`; 0 means that there is none, and creates
    /// it. Returns the new version.
    ///
    /// # Errors
    ///
    /// Fails with [`Conflict`](StoreError::Conflict) if the version is another one: nothing was
    /// written. After any other error it may be unknown whether something was.
    fn append(
        &self,
        key: &SessionKey,
        expected: u64,
        append: Append,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns a page of the sessions, by the time of their last write and then by their keys, the
    /// latest first. A session that is written between two pages moves to the front, and is missing
    /// in the second.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn list(
        &self,
        query: &SessionQuery,
    ) -> impl Future<Output = Result<Vec<SessionInfo>, StoreError>> + Send;

    /// Deletes the session with all its entries; returns whether there was one.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    fn delete(&self, key: &SessionKey) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes expired sessions, and returns their number. Call it periodically.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    fn delete_expired(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A session as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSession {
    /// The version.
    pub version: u64,
    /// The head, as JSON.
    pub head: String,
    /// The entries, as JSON, oldest first.
    pub entries: Vec<String>,
}

impl StoredSession {
    /// Creates a session without entries.
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

/// One atomic write to a session.
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
    /// The kind of the session, which says what reads it: `session` for
    /// [`SessionLayer`](crate::SessionLayer), `thread` for
    /// [`SessionThreads`](crate::SessionThreads).
    pub kind: Arc<str>,
    /// The session has open interrupts.
    pub is_waiting: bool,
    /// The time at which the session expires, if it does.
    pub expires_at: Option<SystemTime>,
}

impl Append {
    /// Creates a write of a head without entries; `from` is the number of entries that stay. The
    /// session is of kind `session`, and without open interrupts.
    pub fn new(head: impl Into<String>, from: usize) -> Self {
        Self {
            head: head.into(),
            from,
            entries: Vec::new(),
            kind: SESSION.into(),
            is_waiting: false,
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

    /// Sets whether the session has open interrupts.
    #[must_use]
    pub fn waiting(mut self, is_waiting: bool) -> Self {
        self.is_waiting = is_waiting;
        self
    }

    /// Sets when the session expires. Defaults to never.
    #[must_use]
    pub fn expires_at(mut self, at: Option<SystemTime>) -> Self {
        self.expires_at = at;
        self
    }
}

impl<S: SessionStore> SessionStore for Arc<S> {
    fn load(
        &self,
        key: &SessionKey,
    ) -> impl Future<Output = Result<Option<StoredSession>, StoreError>> + Send {
        (**self).load(key)
    }

    fn append(
        &self,
        key: &SessionKey,
        expected: u64,
        append: Append,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).append(key, expected, append)
    }

    fn list(
        &self,
        query: &SessionQuery,
    ) -> impl Future<Output = Result<Vec<SessionInfo>, StoreError>> + Send {
        (**self).list(query)
    }

    fn delete(&self, key: &SessionKey) -> impl Future<Output = Result<bool, StoreError>> + Send {
        (**self).delete(key)
    }

    fn delete_expired(&self) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).delete_expired()
    }
}
