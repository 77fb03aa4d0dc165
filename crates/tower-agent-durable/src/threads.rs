//! The threads of a server, in a store of sessions.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tower_agent::error::BoxError;
use tower_agent_threads::{Thread, ThreadEntry, ThreadInfo, ThreadKey, ThreadQuery, ThreadStore};

use crate::error::StoreError;
use crate::json;
use crate::lock::lock;
use crate::sessions::{
    Append, SessionInfo, SessionKey, SessionQuery, SessionStore, StoredSession, THREAD, read_head,
};

const FORMAT: u32 = 1;

/// The maximum number of threads that are remembered between two writes.
const MOST: usize = 4096;

/// Keeps the threads of a server, such as one for AG-UI, in a store of sessions, so that they
/// survive a restart and several servers can share them.
///
/// The session of a thread has the server's name, the principal and the id of the thread as its
/// key, as the [key](ThreadKey) of the thread does. Each message is written once; a thread is
/// loaded when a request for it arrives.
///
/// ```
/// use tower_agent_agui::AgUi;
/// use tower_agent_durable::{SessionThreads, Sqlite};
/// # use tower_agent::Agent;
/// # use tower_agent::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
/// let store = Sqlite::in_memory().await?;
/// let server = AgUi::builder(agent)
///     .name("shop")
///     .threads(SessionThreads::new(store))
///     // A client may send only its new message.
///     .allow_partial_history()
///     .build();
/// # drop(server);
/// # Ok(())
/// # }
/// ```
pub struct SessionThreads<S> {
    store: S,
    ttl: Option<Duration>,
    known: Mutex<HashMap<SessionKey, CachedThread>>,
}

/// The stored form of a thread, as far as it is known. A cache: avoids a load before a write.
struct CachedThread {
    /// The version that the server knows.
    thread: u64,
    /// The version in the store.
    version: u64,
    /// The number of entries that do not change any more.
    settled: usize,
    /// The entries after them, which may still change.
    open: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct ThreadHead {
    kind: String,
    format: u32,
    thread: Thread,
}

impl<S: SessionStore> SessionThreads<S> {
    /// Creates a store of threads.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            store,
            ttl: None,
            known: Mutex::default(),
        }
    }

    /// Sets after which time without a run a thread expires. Defaults to never.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Returns the stored form of a thread, or `None` if its version is not the expected one.
    async fn known(
        &self,
        key: &SessionKey,
        expected: u64,
    ) -> Result<Option<CachedThread>, StoreError> {
        let known = self
            .map()
            .remove(key)
            .filter(|known| known.thread == expected);
        if known.is_some() {
            return Ok(known);
        }
        // Version 0 is a thread that is not stored yet.
        let mut open = Vec::new();
        let mut version = 0;
        if expected > 0 {
            let Some(stored) = self.store.load(key).await? else {
                return Ok(None);
            };
            if head(&stored)?.version() != expected {
                return Ok(None);
            }
            open = stored.entries;
            version = stored.version;
        }
        // Nothing is known to be settled, so all entries are compared with the new ones.
        Ok(Some(CachedThread {
            thread: expected,
            version,
            settled: 0,
            open,
        }))
    }

    fn remember(&self, key: SessionKey, known: CachedThread) {
        let mut map = self.map();
        // Simpler than to find the oldest: a forgotten thread costs one load.
        if map.len() >= MOST {
            map.clear();
        }
        map.insert(key, known);
    }

    fn map(&self) -> MutexGuard<'_, HashMap<SessionKey, CachedThread>> {
        lock(&self.known)
    }
}

impl<S: SessionStore> ThreadStore for SessionThreads<S> {
    async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        let key = key_of(key)?;
        let Some(stored) = self.store.load(&key).await? else {
            return Ok(None);
        };
        let mut entries: Vec<ThreadEntry> = Vec::with_capacity(stored.entries.len());
        for entry in &stored.entries {
            entries.push(serde_json::from_str(entry)?);
        }
        let settled = entries.len();
        let thread = head(&stored)?.with_entries(entries);
        // The entries of an active run still change: whoever only reads the thread knows less of
        // them than its run.
        let known = self.map().get(&key).map(|known| known.thread);
        if thread.is_running() || known == Some(thread.version()) {
            return Ok(Some(thread));
        }
        // Entries that were there before a run do not change in it.
        self.remember(
            key,
            CachedThread {
                thread: thread.version(),
                version: stored.version,
                settled,
                open: Vec::new(),
            },
        );
        Ok(Some(thread))
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        let key = key_of(key)?;
        let Some(known) = self.known(&key, expected).await? else {
            return Ok(false);
        };
        // Entries are compared as they are written, so that the write begins with the first that
        // differs.
        let mut open = Vec::new();
        for entry in thread.entries().skip(known.settled) {
            open.push(json::write(&entry)?);
        }
        let same = open
            .iter()
            .zip(&known.open)
            .take_while(|(new, old)| new == old)
            .count();
        let head = ThreadHead {
            kind: THREAD.to_owned(),
            format: FORMAT,
            thread: thread.without_entries(),
        };
        let append = Append::new(json::write(&head)?, known.settled + same);
        let expires_at = self.ttl.and_then(|ttl| SystemTime::now().checked_add(ttl));
        let append = append
            .entries(open[same..].to_vec())
            .kind(THREAD)
            .waiting(thread.is_waiting())
            .expires_at(expires_at);
        let version = match self.store.append(&key, known.version, append).await {
            // Another server has written. The caller decides what to do; what was known here is
            // gone.
            Err(error) if error.is_conflict() => return Ok(false),
            written => written?,
        };
        // After the run's last write nobody needs it until the next request, which loads the
        // thread.
        if thread.is_running() {
            self.remember(
                key,
                CachedThread {
                    thread: thread.version(),
                    version,
                    settled: known.settled,
                    open,
                },
            );
        }
        Ok(true)
    }

    async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        list(&self.store, THREAD, query).await
    }

    async fn delete(&self, key: &ThreadKey) -> Result<bool, BoxError> {
        let key = key_of(key)?;
        self.map().remove(&key);
        Ok(self.store.delete(&key).await?)
    }
}

/// Returns a page of what is stored as this kind.
pub(crate) async fn list(
    store: &impl SessionStore,
    kind: &str,
    query: &ThreadQuery,
) -> Result<Vec<ThreadInfo>, BoxError> {
    let mut sessions = SessionQuery::new().kind(kind).limit(query.limit);
    sessions.app = query.server.clone();
    sessions.user = query.principal.clone();
    sessions.is_waiting = query.is_waiting;
    if let Some(after) = &query.after {
        let last = SessionInfo::new(key_of(&after.key)?, 0, after.updated_at);
        sessions = sessions.after(&last);
    }
    let page = store.list(&sessions).await?;
    Ok(page.into_iter().map(info_of).collect())
}

fn info_of(session: SessionInfo) -> ThreadInfo {
    let SessionKey {
        app,
        user,
        session: thread,
    } = session.key;
    let key =
        ThreadKey::new(app, thread).with_principal(Some(user).filter(|user| !user.is_empty()));
    ThreadInfo::new(key, session.updated_at, session.is_waiting)
}

pub(crate) fn key_of(key: &ThreadKey) -> Result<SessionKey, BoxError> {
    let user = key.principal.clone().unwrap_or_default();
    if key.principal.is_some() && user.is_empty() {
        // It would have the threads of those without a principal.
        return Err("a principal must not be empty".into());
    }
    Ok(SessionKey::new(
        key.server.clone(),
        user,
        key.thread.clone(),
    ))
}

/// Returns the stored thread without its entries.
fn head(stored: &StoredSession) -> Result<Thread, StoreError> {
    let head: ThreadHead = read_head(&stored.head, THREAD, FORMAT)?;
    Ok(head.thread)
}

impl<S> fmt::Debug for SessionThreads<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionThreads")
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
