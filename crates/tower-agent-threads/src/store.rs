use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;

use tower_agent::error::BoxError;

use crate::key::ThreadKey;
use crate::query::{ThreadInfo, ThreadQuery};
use crate::saving::Saving;
use crate::thread::Thread;
use crate::time::{micros, now};

/// Stores the threads of a server, in memory or in a database.
///
/// Saving is a compare-and-swap: it replaces the expected version, or nothing. This is what lets
/// only one of two concurrent requests for a thread run, and an answer count only once. A store
/// that ignores the version lets both run.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use tokio::sync::Mutex;
/// use tower_agent::BoxError;
/// use tower_agent_threads::{Thread, ThreadInfo, ThreadKey, ThreadQuery, ThreadStore};
///
/// /// Never evicts a thread.
/// #[derive(Default)]
/// struct Memory(Mutex<HashMap<ThreadKey, Thread>>);
///
/// impl ThreadStore for Memory {
///     async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
///         Ok(self.0.lock().await.get(key).cloned())
///     }
///
///     async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
///         let mut threads = self.0.lock().await;
///         let found = threads.get(key).map_or(0, Thread::version);
///         if found == expected {
///             threads.insert(key.clone(), thread);
///         }
///         Ok(found == expected)
///     }
///
///     async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
///         let threads = self.0.lock().await;
///         let all = threads.iter().map(|(key, thread)| thread.info(key.clone()));
///         let mut page: Vec<_> = all.filter(|thread| query.selects(thread)).collect();
///         page.sort_by_key(|thread| (thread.updated_at, thread.key.clone()));
///         page.reverse();
///         page.truncate(query.limit as usize);
///         Ok(page)
///     }
///
///     async fn delete(&self, key: &ThreadKey) -> Result<bool, BoxError> {
///         Ok(self.0.lock().await.remove(key).is_some())
///     }
/// }
/// ```
pub trait ThreadStore: Send + Sync + 'static {
    /// Returns the thread, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read. Nothing runs then.
    fn load(
        &self,
        key: &ThreadKey,
    ) -> impl Future<Output = Result<Option<Thread>, BoxError>> + Send;

    /// Saves the thread if the stored version is `expected`; 0 means that there is none. Returns
    /// whether it was saved.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written, or the outcome is unknown. A running run is then
    /// stopped.
    fn save(
        &self,
        key: &ThreadKey,
        thread: Thread,
        expected: u64,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send;

    /// Returns a page of the threads, by the time of their last save and then by their keys, the
    /// latest first. A thread that is saved between two pages moves to the front, and is missing in
    /// the second. A page with fewer threads than the query's limit is the last one.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn list(
        &self,
        query: &ThreadQuery,
    ) -> impl Future<Output = Result<Vec<ThreadInfo>, BoxError>> + Send;

    /// Deletes a thread; returns whether there was one. A run that is active in it stops at its
    /// next save.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    fn delete(&self, key: &ThreadKey) -> impl Future<Output = Result<bool, BoxError>> + Send;

    /// Deletes all threads of an owner, on all servers; returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read or written. Some threads may be deleted then.
    fn delete_of_principal(
        &self,
        principal: &str,
    ) -> impl Future<Output = Result<u64, BoxError>> + Send {
        async move {
            let query = ThreadQuery::new().principal(principal);
            let mut deleted = 0;
            loop {
                // Always the first page: what was on it before is gone.
                let page = self.list(&query).await?;
                if page.is_empty() {
                    return Ok(deleted);
                }
                for thread in page {
                    deleted += u64::from(self.delete(&thread.key).await?);
                }
            }
        }
    }
}

impl<S: ThreadStore> ThreadStore for Arc<S> {
    fn load(
        &self,
        key: &ThreadKey,
    ) -> impl Future<Output = Result<Option<Thread>, BoxError>> + Send {
        (**self).load(key)
    }

    fn save(
        &self,
        key: &ThreadKey,
        thread: Thread,
        expected: u64,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        (**self).save(key, thread, expected)
    }

    fn list(
        &self,
        query: &ThreadQuery,
    ) -> impl Future<Output = Result<Vec<ThreadInfo>, BoxError>> + Send {
        (**self).list(query)
    }

    fn delete(&self, key: &ThreadKey) -> impl Future<Output = Result<bool, BoxError>> + Send {
        (**self).delete(key)
    }

    fn delete_of_principal(
        &self,
        principal: &str,
    ) -> impl Future<Output = Result<u64, BoxError>> + Send {
        (**self).delete_of_principal(principal)
    }
}

/// A store of any type.
#[derive(Clone)]
pub(crate) struct BoxStore {
    store: Arc<dyn ErasedStore>,
    /// The saves that are made in tasks.
    tasks: TaskTracker,
}

trait ErasedStore: Send + Sync {
    fn load<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<Option<Thread>, BoxError>>;
    fn save<'a>(
        &'a self,
        key: &'a ThreadKey,
        thread: Thread,
        expected: u64,
    ) -> BoxFuture<'a, Result<bool, BoxError>>;
    fn list<'a>(
        &'a self,
        query: &'a ThreadQuery,
    ) -> BoxFuture<'a, Result<Vec<ThreadInfo>, BoxError>>;
}

impl<S: ThreadStore> ErasedStore for S {
    fn load<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<Option<Thread>, BoxError>> {
        Box::pin(ThreadStore::load(self, key))
    }

    fn save<'a>(
        &'a self,
        key: &'a ThreadKey,
        thread: Thread,
        expected: u64,
    ) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(ThreadStore::save(self, key, thread, expected))
    }

    fn list<'a>(
        &'a self,
        query: &'a ThreadQuery,
    ) -> BoxFuture<'a, Result<Vec<ThreadInfo>, BoxError>> {
        Box::pin(ThreadStore::list(self, query))
    }
}

impl BoxStore {
    pub(crate) fn new(store: impl ThreadStore) -> Self {
        Self {
            store: Arc::new(store),
            tasks: TaskTracker::new(),
        }
    }

    /// Returns a save that can be made in a task, which [`finish`](Self::finish) waits for.
    pub(crate) fn saving(
        &self,
        save: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) -> Saving {
        Saving::new(save, self.tasks.clone())
    }

    /// Waits for the saves that are made in tasks.
    pub(crate) async fn finish(&self) {
        // Only lets `wait` return: later saves are made, too.
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        self.store.load(key).await
    }

    pub(crate) async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        self.store.list(query).await
    }

    /// Saves the next version of a thread. Returns it, or `None` if the thread was not saved.
    pub(crate) async fn save(
        &self,
        key: &ThreadKey,
        mut thread: Thread,
    ) -> Result<Option<u64>, BoxError> {
        let expected = thread.version;
        // The first one is the time: the versions of a deleted thread are not used again by the
        // next one with its key, which a run of the deleted one could otherwise overwrite.
        let version = if expected == 0 {
            micros()
        } else {
            expected + 1
        };
        thread.version = version;
        thread.updated_at = now();
        let is_saved = self.store.save(key, thread, expected).await?;
        Ok(is_saved.then_some(version))
    }
}

impl fmt::Debug for BoxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxStore").finish_non_exhaustive()
    }
}
