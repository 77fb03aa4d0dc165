use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use tower_agent::error::BoxError;

use crate::thread::Thread;

/// Identifies a thread. The principal is part of the key, so that the thread of another principal
/// is unknown.
///
/// ```
/// use tower_agent_threads::ThreadKey;
///
/// let key = ThreadKey::new("shop", "thread 1").with_principal(Some("ada".into()));
/// assert_ne!(key, ThreadKey::new("shop", "thread 1"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ThreadKey {
    /// The server's name. Servers of different agents that share a store or a key need different
    /// ones.
    pub server: Arc<str>,
    /// The owner; `None` without one.
    pub principal: Option<Arc<str>>,
    /// The client's id of the thread.
    pub thread: Arc<str>,
}

impl ThreadKey {
    /// Creates the key of a thread without an owner.
    pub fn new(server: impl Into<Arc<str>>, thread: impl Into<Arc<str>>) -> Self {
        Self {
            server: server.into(),
            principal: None,
            thread: thread.into(),
        }
    }

    /// Sets the owner, as the server has authenticated it. Defaults to none: then whoever knows the
    /// id of the thread can continue it.
    #[must_use]
    pub fn with_principal(mut self, principal: Option<Arc<str>>) -> Self {
        self.principal = principal;
        self
    }
}

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
/// use tower_agent_threads::{Thread, ThreadKey, ThreadStore};
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
}

/// A store of any type.
#[derive(Clone)]
pub(crate) struct BoxStore(Arc<dyn Erased>);

trait Erased: Send + Sync {
    fn load<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<Option<Thread>, BoxError>>;
    fn save<'a>(
        &'a self,
        key: &'a ThreadKey,
        thread: Thread,
        expected: u64,
    ) -> BoxFuture<'a, Result<bool, BoxError>>;
}

impl<S: ThreadStore> Erased for S {
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
}

impl BoxStore {
    pub(crate) fn new(store: impl ThreadStore) -> Self {
        Self(Arc::new(store))
    }

    pub(crate) async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        self.0.load(key).await
    }

    /// Saves the next version of a thread.
    pub(crate) async fn save(&self, key: &ThreadKey, mut thread: Thread) -> Result<bool, BoxError> {
        let expected = thread.version;
        thread.version += 1;
        self.0.save(key, thread, expected).await
    }
}

impl fmt::Debug for BoxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxStore").finish_non_exhaustive()
    }
}
