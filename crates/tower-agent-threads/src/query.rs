use std::sync::Arc;
use std::time::SystemTime;

use crate::key::ThreadKey;

/// A query for [`list`](crate::ThreadStore::list): which threads, and where the page starts.
///
/// ```
/// use tower_agent_threads::{MemoryThreads, ThreadQuery, ThreadStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let store = MemoryThreads::new();
/// let mut query = ThreadQuery::new().principal("ada").limit(20);
/// loop {
///     let page = store.list(&query).await?;
///     for thread in &page {
///         println!("{}: {:?}", thread.key.thread, thread.updated_at);
///     }
///     let Some(last) = page.last() else { break };
///     query = query.after(last);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadQuery {
    /// The server; `None` for all.
    pub server: Option<Arc<str>>,
    /// The owner; `None` for all.
    pub principal: Option<Arc<str>>,
    /// Only threads with open interrupts.
    pub is_waiting: bool,
    /// The last thread of the page before.
    pub after: Option<ThreadInfo>,
    /// The maximum number of threads.
    pub limit: u32,
}

impl ThreadQuery {
    /// Creates a query for the first 100 threads of all servers and owners.
    #[must_use]
    pub fn new() -> Self {
        Self {
            server: None,
            principal: None,
            is_waiting: false,
            after: None,
            limit: 100,
        }
    }

    /// Selects the threads of one server.
    #[must_use]
    pub fn server(mut self, server: impl Into<Arc<str>>) -> Self {
        self.server = Some(server.into());
        self
    }

    /// Selects the threads of one owner.
    #[must_use]
    pub fn principal(mut self, principal: impl Into<Arc<str>>) -> Self {
        self.principal = Some(principal.into());
        self
    }

    /// Selects the threads that have open interrupts.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.is_waiting = true;
        self
    }

    /// Continues after this thread, the last of the page before.
    #[must_use]
    pub fn after(mut self, last: &ThreadInfo) -> Self {
        self.after = Some(last.clone());
        self
    }

    /// Sets the maximum number of threads. Defaults to 100.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Returns whether a page of this query may have the thread, for a store of your own.
    #[must_use]
    pub fn selects(&self, thread: &ThreadInfo) -> bool {
        let is_behind = |after: &ThreadInfo| thread.position() < after.position();
        self.server
            .as_ref()
            .is_none_or(|server| *server == thread.key.server)
            && (self.principal.is_none() || self.principal == thread.key.principal)
            && (!self.is_waiting || thread.is_waiting)
            && self.after.as_ref().is_none_or(is_behind)
    }
}

impl Default for ThreadQuery {
    fn default() -> Self {
        Self::new()
    }
}

/// One thread of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The key.
    pub key: ThreadKey,
    /// The time of the last save.
    pub updated_at: SystemTime,
    /// The thread has open interrupts.
    pub is_waiting: bool,
}

impl ThreadInfo {
    /// Creates an entry of a list, for a store of your own.
    #[must_use]
    pub fn new(key: ThreadKey, updated_at: SystemTime, is_waiting: bool) -> Self {
        Self {
            key,
            updated_at,
            is_waiting,
        }
    }

    /// Returns the place in a list, which shows the latest thread first.
    pub(crate) fn position(&self) -> (SystemTime, &ThreadKey) {
        (self.updated_at, &self.key)
    }
}
