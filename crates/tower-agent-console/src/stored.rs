//! Runs in a database: what a store has to do, and the form of what it keeps.

use futures_util::future::BoxFuture;
use tower_agent::error::Result;

/// Keeps runs, of this process and of others; given to a console by
/// [`stored_in`](crate::Console::stored_in).
///
/// `Sqlite` and `Postgres` of
/// [`tower-agent-durable`](https://docs.rs/tower-agent-durable) are stores, with its feature
/// `console`. Without one, a console keeps runs in memory alone.
///
/// # Errors
///
/// A call fails with [`Store`](tower_agent::ErrorKind::Store) if the database does. One that never
/// returns is waited for where it writes, and not where somebody looks.
pub trait RunStore: Send + Sync + 'static {
    /// Keeps what is new of a run, all of it or nothing: the head in the place of the one that it
    /// has of the same [key](StoredKey), and each entry in the place of the one at its position. A
    /// text or a call that is here already stays if the new entry has none.
    ///
    /// Returns whether it is kept: not if the run was here before, and was removed.
    fn put(&self, run: StoredRun) -> BoxFuture<'_, Result<bool>>;

    /// Returns the runs that a query selects, the latest first.
    fn list<'a>(&'a self, query: &'a StoredQuery) -> BoxFuture<'a, Result<Vec<StoredHead>>>;

    /// Returns at most so many entries of a run, from this place on. Without `with_texts` no entry
    /// has its texts, and none has a call as a whole. Nothing for a run that is not here.
    fn entries<'a>(
        &'a self,
        key: &'a StoredKey,
        from: u32,
        limit: u32,
        with_texts: bool,
    ) -> BoxFuture<'a, Result<Vec<StoredEntry>>>;

    /// The same, with the calls as a whole in place of the texts.
    fn calls<'a>(
        &'a self,
        key: &'a StoredKey,
        from: u32,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<StoredEntry>>>;

    /// Returns the numbers of a console's runs, from this one on, in any order.
    fn numbers<'a>(&'a self, console: &'a str, from: u64) -> BoxFuture<'a, Result<Vec<u64>>>;

    /// Removes a run, and returns whether it was here.
    fn remove(&self, key: StoredKey) -> BoxFuture<'_, Result<bool>>;

    /// Removes the runs of a user, and returns how many there were.
    fn remove_user(&self, user: String) -> BoxFuture<'_, Result<u64>>;

    /// Adds rows to the audit. One whose [place](StoredAudit::place) has a row already is left out.
    fn audit(&self, rows: Vec<StoredAudit>) -> BoxFuture<'_, Result<()>>;

    /// Returns at most so many rows of the audit, the latest first, or those behind this place.
    fn audited<'a>(
        &'a self,
        before: Option<&'a StoredPlace>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<StoredAudit>>>;

    /// Removes what is beyond these bounds, the oldest first, and returns how many runs it was. The
    /// latest run stays, however large it is, unless it is too old.
    fn trim(&self, bounds: StoredBounds) -> BoxFuture<'_, Result<u64>>;
}

/// Names a run in a [`RunStore`]: two processes may have runs with the same id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredKey {
    /// The console that has watched it; each process has another one.
    pub console: String,
    /// The place among the runs of that console, from 1.
    pub number: u64,
}

/// The news of a run, for a [`RunStore`]. Its texts have no `NUL`, which not every database takes.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// Nothing of it was put before.
    pub is_new: bool,
    /// The line that the list shows of it.
    pub head: StoredHead,
    /// The bytes that all of it takes, as the console estimates them.
    pub bytes: u64,
    /// The entries that are new, or have changed, since it was put last.
    pub entries: Vec<StoredEntry>,
}

/// The line that a list shows of a run in a [`RunStore`].
#[derive(Clone, Debug)]
pub struct StoredHead {
    /// The name of the run in the store.
    pub key: StoredKey,
    /// The id that the console has shown it with.
    pub id: String,
    /// The path of the agent that was called.
    pub agent: String,
    /// `completed`, `waiting`, `failed` or `cancelled`; `unfinished` if it had not ended when it
    /// was put.
    pub status: String,
    /// The begin, in microseconds since 1970.
    pub begun: u64,
    /// The end, or when it was put if it has none, in microseconds since 1970.
    pub heard: u64,
    /// The user in the clear, if the console has been told.
    pub user: Option<String>,
    /// The rest, as a JSON object.
    pub summary: String,
}

/// Something that happened in a run, in a [`RunStore`].
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Its place among those of the run, from 0.
    pub position: u32,
    /// The event, as a JSON object without content.
    pub entry: String,
    /// The id of the call of a tool that it is.
    pub call: Option<String>,
    /// Its texts as a JSON object, if they are recorded.
    pub texts: Option<String>,
    /// The call as a whole as a JSON object, if it is recorded: what forks and recordings are made
    /// of.
    pub whole: Option<String>,
}

/// A write of somebody from a console, in a [`RunStore`].
#[derive(Clone, Debug)]
pub struct StoredAudit {
    /// The time of it, and its number among those of its console.
    pub place: StoredPlace,
    /// The name of the operator.
    pub operator: String,
    /// `answer`, `fork`, `save`, `export` or `delete`.
    pub action: String,
    /// The run, the question or the hash of the user that it was about.
    pub about: String,
    /// The HTTP status of the response.
    pub status: u16,
}

/// The runs that a [`RunStore`] is asked for: those that have all that is set.
#[derive(Clone, Debug, Default)]
pub struct StoredQuery {
    /// This one alone.
    pub key: Option<StoredKey>,
    /// The id that the console has shown it with.
    pub id: Option<String>,
    /// The path of the agent, or the last part of it.
    pub agent: Option<String>,
    /// The [status](StoredHead::status).
    pub status: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The id of a call of a tool that was made in it.
    pub call: Option<String>,
    /// Only what comes behind this place in the list.
    pub before: Option<StoredPlace>,
    /// The maximum number of runs.
    pub limit: u32,
}

/// A place in a list of runs or of the audit, which is in the order of their begin, and of their
/// keys where that is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredPlace {
    /// The begin, in microseconds since 1970.
    pub begun: u64,
    /// The key.
    pub key: StoredKey,
}

/// The bounds of what a [`RunStore`] keeps.
#[derive(Clone, Copy, Debug)]
pub struct StoredBounds {
    /// The number of runs.
    pub runs: u64,
    /// The [bytes](StoredRun::bytes) of all runs.
    pub bytes: u64,
    /// The number of rows of the audit.
    pub audit: u64,
    /// Runs that were [heard](StoredHead::heard) of before this are too old. In microseconds since
    /// 1970; 0 for none.
    pub oldest: u64,
}

impl StoredHead {
    /// Returns the last part of the agent's path, by which it is asked for as well.
    #[must_use]
    pub fn name(&self) -> &str {
        self.agent.rsplit('/').next().unwrap_or_default()
    }

    /// Returns its place in a list.
    #[must_use]
    pub fn place(&self) -> StoredPlace {
        StoredPlace {
            begun: self.begun,
            key: self.key.clone(),
        }
    }
}
