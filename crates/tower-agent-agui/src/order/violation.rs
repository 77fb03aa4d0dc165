use std::sync::Arc;

use crate::wire::RunError;
use tower_agent::error::{Error, ErrorKind};

/// An event that is out of order and cannot be repaired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It starts or ends another run.
    #[error("`{event}` belongs to {found}, but the current run is {expected}")]
    WrongRun {
        /// The event's name.
        event: &'static str,
        /// The run's thread and id.
        expected: String,
        /// The event's thread and id.
        found: String,
    },
    /// It continues an entity that is not open.
    #[error("`{event}` continues `{id}`, which is not open")]
    NotOpen {
        /// The event's name.
        event: &'static str,
        /// The id of the entity.
        id: Arc<str>,
    },
    /// It continues an entity of another agent.
    #[error("`{event}` of {} continues `{id}` of {}", agent(.found), agent(.owner))]
    Owner {
        /// The event's name.
        event: &'static str,
        /// The id of the entity.
        id: Arc<str>,
        /// The subagent that owns the entity; `None` is the agent itself.
        owner: Option<Arc<str>>,
        /// The subagent that the event names.
        found: Option<Arc<str>>,
    },
    /// A chunk has no id, and nothing determines it.
    #[error("`{event}` needs a `{field}`: it starts an entity, or several are open")]
    Chunk {
        /// The event's name.
        event: &'static str,
        /// The missing field.
        field: &'static str,
    },
    /// A subagent id was used before in this run.
    #[error("subagent `{id}` has already ended in this run; use a new id for each subagent")]
    SubagentReused {
        /// The id of the subagent.
        id: Arc<str>,
    },
    /// A subagent's parent was not started.
    #[error("subagent `{id}` has the parent `{parent}`, which was not started in this run")]
    UnknownParent {
        /// The id of the subagent.
        id: Arc<str>,
        /// The id of its parent.
        parent: Arc<str>,
    },
    /// The run is interrupted, but has no interrupts.
    #[error("the run ends as interrupted, but has no interrupts")]
    EmptyInterrupt,
}

fn agent(id: &Option<Arc<str>>) -> String {
    match id {
        Some(id) => format!("subagent `{id}`"),
        None => "the agent itself".to_owned(),
    }
}

/// Has the code `EVENT_ORDER`.
impl From<Violation> for RunError {
    fn from(violation: Violation) -> Self {
        Self::new(violation.to_string()).with_code("EVENT_ORDER")
    }
}

/// Has the kind [`Protocol`](ErrorKind::Protocol) and is never retryable.
impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::new(ErrorKind::Protocol, violation.to_string())
            .with_retryable(false)
            .with_source(violation)
    }
}
