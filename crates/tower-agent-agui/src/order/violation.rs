use std::sync::Arc;

use crate::wire::RunError;
use tower_agent::error::{Error, ErrorKind};

/// An event that cannot leave, and cannot be mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It begins or ends another run.
    #[error("`{event}` is of {found}, but the run is {expected}")]
    WrongRun {
        /// The event.
        event: &'static str,
        /// The run's thread and id.
        expected: String,
        /// The event's thread and id.
        found: String,
    },
    /// It goes on with what is not open.
    #[error("`{event}` goes on with `{id}`, which is not open")]
    NotOpen {
        /// The event.
        event: &'static str,
        /// What it goes on with.
        id: Arc<str>,
    },
    /// It is of one agent, and what it goes on with is of another.
    #[error("`{event}` of {} goes on with `{id}` of {}", agent(.found), agent(.owner))]
    Owner {
        /// The event.
        event: &'static str,
        /// What it goes on with.
        id: Arc<str>,
        /// The subagent whose it is; none is the agent itself.
        owner: Option<Arc<str>>,
        /// The subagent that the event names.
        found: Option<Arc<str>>,
    },
    /// A chunk does not say what it begins, or goes on with.
    #[error("`{event}` needs a `{field}`: it begins something, or could go on with several")]
    Chunk {
        /// The event.
        event: &'static str,
        /// What it lacks.
        field: &'static str,
    },
    /// A subagent's name is used a second time in the run.
    #[error("the subagent `{id}` has already ended in this run; each one needs its own name")]
    SubagentReused {
        /// The subagent.
        id: Arc<str>,
    },
    /// A subagent is begun by one that was not.
    #[error("the subagent `{id}` names the parent `{parent}`, which did not begin in this run")]
    UnknownParent {
        /// The subagent.
        id: Arc<str>,
        /// Its parent.
        parent: Arc<str>,
    },
    /// The run waits, but for nothing.
    #[error("the run ends as interrupted, but names no interrupt")]
    EmptyInterrupt,
}

fn agent(id: &Option<Arc<str>>) -> String {
    match id {
        Some(id) => format!("the subagent `{id}`"),
        None => "the agent itself".to_owned(),
    }
}

/// With the code `EVENT_ORDER`.
impl From<Violation> for RunError {
    fn from(violation: Violation) -> Self {
        Self::new(violation.to_string()).with_code("EVENT_ORDER")
    }
}

/// Of the kind [`Protocol`](ErrorKind::Protocol); never to be retried.
impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::new(ErrorKind::Protocol, violation.to_string())
            .with_retryable(false)
            .with_source(violation)
    }
}
