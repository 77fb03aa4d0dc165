//! Durable runs: what a console is told of them.

use futures_util::future::BoxFuture;
use tower_agent::Agent;
use tower_agent::error::Result;

/// Lists the durable runs of a program, and goes on with those whose processes have died; given to
/// a console by [`durable_runs`](crate::Console::durable_runs).
///
/// `Runs` of [`tower-agent-durable`](https://docs.rs/tower-agent-durable) is one, with its feature
/// `console`.
pub trait DurableRuns: Send + Sync + 'static {
    /// Returns the runs that a query selects, those that began last first.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read.
    fn list<'a>(&'a self, query: &'a DurableQuery) -> BoxFuture<'a, Result<Vec<DurableRun>>>;

    /// Goes on with a run, to its end, and returns whether it did: `false` if a process works on
    /// it.
    ///
    /// # Errors
    ///
    /// Fails if the run is not there, cannot go on with this agent, or fails itself.
    fn resume(&self, run: DurableKey, agent: Agent) -> BoxFuture<'_, Result<bool>>;
}

/// A durable run as a console lists it: nothing of what was said in it.
#[derive(Clone, Debug)]
pub struct DurableRun {
    /// The name of the run, and its place in the list.
    pub key: DurableKey,
    /// The path of the agent that was called.
    pub agent: String,
    /// The version of the program that has started it last, if the program has told.
    pub version: Option<String>,
    /// The id of the stored conversation that it is part of.
    pub conversation: Option<String>,
    /// `running`, `lost`, `waiting`, `failed`, `completed`, `cancelled` or `unreadable`. One that
    /// is lost ran when its process ended, and nobody works on it.
    pub status: String,
    /// The parties that it waits for: `user`, or a role.
    pub waits_for: Vec<String>,
    /// The code of the kind of the error with which it has failed.
    pub error: Option<String>,
    /// The last sign of life, in microseconds since 1970.
    pub updated: u64,
    /// It is lost, and [`resume`](DurableRuns::resume) goes on with it: nothing else has to, such
    /// as the client of its conversation.
    pub may_resume: bool,
}

/// Names a durable run: two users may have runs with the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableKey {
    /// The begin, in microseconds since 1970.
    pub begun: u64,
    /// The id of the run.
    pub id: String,
    /// The user whom it belongs to.
    pub user: Option<String>,
}

/// The durable runs that are asked for: those that have all that is set.
#[derive(Clone, Debug, Default)]
pub struct DurableQuery {
    /// The agent that was called.
    pub agent: Option<String>,
    /// The [status](DurableRun::status).
    pub status: Option<String>,
    /// The begin, in microseconds since 1970.
    pub begun: Option<u64>,
    /// Only what comes behind this run in the list, which may be gone.
    pub after: Option<DurableKey>,
    /// The maximum number of runs.
    pub limit: u32,
}
