use std::sync::Arc;

use tower_agent::Error;

use tower_agent_durable::journal::JournalError;

/// The reason why a run cannot be started, resumed or made here.
///
/// As an [`Error`] it is an abort; [`downcast_ref`](Error::downcast_ref) finds it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbosError {
    /// The agent's calls are not journaled: a run would begin anew in another process.
    #[error(
        "agent `{agent}` has no journal: pass `Durable` to `global_callbacks` of the outermost agent"
    )]
    NotDurable {
        /// The agent.
        agent: String,
    },
    /// The agent keeps its runs in another journal than the engine's.
    #[error(
        "run `{run}` is not in the engine's journal: give the agent's `Durable` the database that the \
         engine was connected with"
    )]
    OtherJournal {
        /// The run.
        run: Arc<str>,
    },
    /// The request has something that another process cannot get.
    #[error("{what} of a request cannot be sent to a worker: give them to the worker's agent")]
    NotSaved {
        /// The part of the request.
        what: &'static str,
    },
    /// The run has another request, or another resolution.
    #[error(
        "run `{run}` was started or resumed with another request: deliver that again, or use another \
         run id"
    )]
    OtherRequest {
        /// The run.
        run: Arc<str>,
    },
    /// The run does not wait for this resolution.
    #[error("run `{run}` does not wait for a resolution of `{interrupt}`")]
    NotAsked {
        /// The run.
        run: Arc<str>,
        /// The interrupt's id.
        interrupt: String,
    },
    /// The journal refuses, or cannot be reached.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// DBOS failed, or its database cannot be reached.
    #[error("DBOS failed: {0}")]
    Engine(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl DbosError {
    pub(crate) fn engine(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Engine(Arc::new(error))
    }
}

impl From<DbosError> for Error {
    fn from(error: DbosError) -> Self {
        match error {
            DbosError::Journal(error) => error.into(),
            error => Self::abort(error.to_string()).with_source(error),
        }
    }
}
