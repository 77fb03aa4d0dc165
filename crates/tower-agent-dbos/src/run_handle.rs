use std::fmt;

use dbos::{Client, WorkflowHandle};
use tower_agent::Error;

use crate::error::DbosError;
use tower_agent_durable::journal::{JournalError, RunEnd, RunKey};

/// A request of a run, which a worker makes. Created by [`Engine::start`](super::Engine::start),
/// [`resume`](super::Engine::resume) and [`get`](super::Engine::get).
#[derive(Clone)]
pub struct RunHandle {
    client: Client,
    key: RunKey,
    workflow: String,
}

impl RunHandle {
    pub(crate) fn new(client: Client, key: RunKey, workflow: String) -> Self {
        Self {
            client,
            key,
            workflow,
        }
    }

    /// Returns the run's id.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.key.run
    }

    /// Returns the run's key.
    #[must_use]
    pub fn key(&self) -> &RunKey {
        &self.key
    }

    /// Waits until the request has been made, and returns how it has ended. It may be asked again.
    ///
    /// Without a worker that has the agent, it waits for one.
    ///
    /// # Errors
    ///
    /// Fails with [`Cancelled`](JournalError::Cancelled) if the run was cancelled.
    pub async fn end(&self) -> Result<RunEnd, DbosError> {
        let workflow: WorkflowHandle<RunEnd, Error> = self.client.retrieve_workflow(&self.workflow);
        match workflow.result().await {
            Ok(end) => Ok(end),
            // The agent's error is the end of the run. Every other one is a failure to learn the
            // end.
            Err(dbos::Error::Application(error)) => Ok(RunEnd::Failed(error)),
            Err(dbos::Error::WorkflowCancelled { .. }) => Err(JournalError::Cancelled {
                run: self.key.run.clone(),
            }
            .into()),
            Err(error) => Err(DbosError::engine(error)),
        }
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run", &self.key.run)
            .finish_non_exhaustive()
    }
}
