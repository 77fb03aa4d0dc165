use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tower_agent::Error;

use tower_agent_durable::StoreError;
use tower_agent_durable::journal::JournalError;

/// An error of starting, resuming or executing a run.
///
/// As an [`Error`] it is an abort; [`downcast_ref`](Error::downcast_ref) finds it.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RestateError {
    /// The agent keeps its runs in no journal, or in another than the server's: a run would begin
    /// anew in another process.
    #[error(
        "run `{run}` is not in the server's journal: pass a `Durable` with the worker's engine to \
         `global_callbacks` of the outermost agent"
    )]
    OtherJournal {
        /// The run.
        run: Arc<str>,
    },
    /// The server's ingress cannot be used.
    #[error("the ingress cannot be used: {why}")]
    Ingress {
        /// The reason.
        why: Cow<'static, str>,
    },
    /// The key by which a worker knows its server cannot be read.
    #[error("the server's identity key cannot be used: {why}")]
    IdentityKey {
        /// The reason.
        why: String,
    },
    /// No worker has the agent of a run.
    #[error("the worker has no agent `{agent}`: add it to all workers, and start the run again")]
    UnknownAgent {
        /// The agent.
        agent: Arc<str>,
    },
    /// A part of the request cannot be sent to another process.
    #[error("{what} of a request cannot be sent to a worker: give them to the worker's agent")]
    NotSaved {
        /// The part that cannot be sent.
        what: Cow<'static, str>,
    },
    /// The run does not wait for this resolution.
    #[error("run `{run}` does not wait for a resolution of `{interrupt}`")]
    NotAsked {
        /// The run.
        run: Arc<str>,
        /// The interrupt's id.
        interrupt: String,
    },
    /// An operator has killed the invocation that executes the run. Started again, the run
    /// continues.
    #[error("the invocation of run `{run}` was killed: {why}")]
    Stopped {
        /// The run.
        run: Arc<str>,
        /// The invocation, and what is known of its end.
        why: String,
    },
    /// The journal refuses, or the server cannot be reached.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl From<StoreError> for RestateError {
    fn from(error: StoreError) -> Self {
        JournalError::from(error).into()
    }
}

impl RestateError {
    /// Returns the error as that of a journal.
    pub(crate) fn into_journal(self) -> JournalError {
        match self {
            Self::Journal(error) => error,
            error => StoreError::database(error).into(),
        }
    }
}

impl From<RestateError> for Error {
    fn from(error: RestateError) -> Self {
        match error {
            RestateError::Journal(error) => error.into(),
            error => Self::abort(error.to_string()).with_source(error),
        }
    }
}
