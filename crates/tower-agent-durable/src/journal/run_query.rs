use std::sync::Arc;
use std::time::SystemTime;

use super::run_info::RunInfo;
use super::run_status::RunStatus;

/// A query for [`Runs::list`](super::Runs::list).
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_agent_durable::journal::{RunQuery, RunStatus};
///
/// let today = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
/// let query = RunQuery::of_agent("clerk").user("ada").status(RunStatus::Failed).since(today);
/// # drop(query);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunQuery {
    /// The outermost agent; `None` for all.
    pub agent: Option<Arc<str>>,
    /// The [version](super::Durable::version) of the program; `None` for all.
    pub version: Option<Arc<str>>,
    /// The user; `None` for all, and for those of nobody.
    pub user: Option<Arc<str>>,
    /// The status; `None` for all.
    pub status: Option<RunStatus>,
    /// Only runs that started at this time or later.
    pub since: Option<SystemTime>,
    /// Only runs that started before this time.
    pub before: Option<SystemTime>,
    /// The last run of the page before.
    pub after: Option<RunInfo>,
    /// The maximum number of runs.
    pub limit: u32,
}

impl RunQuery {
    /// Creates a query for the latest 100 runs of all agents and users.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            agent: None,
            version: None,
            user: None,
            status: None,
            since: None,
            before: None,
            after: None,
            limit: 100,
        }
    }

    /// Creates a query for the latest 100 runs of an agent.
    pub fn of_agent(agent: impl Into<Arc<str>>) -> Self {
        Self {
            agent: Some(agent.into()),
            ..Self::new()
        }
    }

    /// Sets the version of the program, that has started a run last.
    #[must_use]
    pub fn version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: impl Into<Arc<str>>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the status. A run that a list shows as [`Unreadable`](RunStatus::Unreadable) has
    /// another one in the database, by which it is found.
    #[must_use]
    pub const fn status(mut self, status: RunStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Selects the runs that started at this time or later.
    #[must_use]
    pub const fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Selects the runs that started before this time.
    #[must_use]
    pub const fn before(mut self, time: SystemTime) -> Self {
        self.before = Some(time);
        self
    }

    /// Continues after this run, the last of the page before.
    #[must_use]
    pub fn after(mut self, last: &RunInfo) -> Self {
        self.after = Some(last.clone());
        self
    }

    /// Sets the maximum number of runs. Defaults to 100.
    #[must_use]
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for RunQuery {
    fn default() -> Self {
        Self::new()
    }
}
