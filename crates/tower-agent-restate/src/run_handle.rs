use std::fmt;

use crate::error::RestateError;
use crate::ingress::Ingress;
use crate::wire::{Failure, Seen, Settle};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{JournalError, RunEnd, RunKey, RunStatus};

/// A run, which a worker makes. Created by [`Engine::start`](super::Engine::start),
/// [`resume`](super::Engine::resume) and [`get`](super::Engine::get).
#[derive(Clone)]
pub struct RunHandle {
    ingress: Ingress,
    key: RunKey,
}

impl RunHandle {
    pub(crate) fn new(ingress: Ingress, key: RunKey) -> Self {
        Self { ingress, key }
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

    /// Waits until the run has ended for now, and returns how. It may be asked again.
    ///
    /// Without a worker that has the agent, it waits for one.
    ///
    /// # Errors
    ///
    /// Fails with [`Cancelled`](JournalError::Cancelled) if the run was cancelled, and if it cannot
    /// be made.
    pub async fn end(&self) -> Result<RunEnd, RestateError> {
        let mut ended = None;
        loop {
            let seen = self.ingress.see(&self.key).await?;
            let Some(invocation) = seen.invocation else {
                return self.read(seen);
            };
            if ended.as_ref() == Some(&invocation) {
                // An invocation that ends by itself settles its request. This one was killed.
                let why = format!("invocation {invocation} was killed");
                let settle = Settle {
                    invocation,
                    outcome: Err(Failure::Refused(RestateError::Stopped {
                        run: self.key.run.clone(),
                        why,
                    })),
                };
                self.ingress
                    .write::<()>(&self.key, "settle", &settle)
                    .await?;
                continue;
            }
            self.ingress.attach(&invocation).await?;
            ended = Some(invocation);
        }
    }

    fn read(&self, seen: Seen) -> Result<RunEnd, RestateError> {
        let end = seen.end()?;
        if seen
            .run
            .is_some_and(|stored| stored.status == RunStatus::Cancelled.as_str())
        {
            return Err(JournalError::Cancelled {
                run: self.key.run.clone(),
            }
            .into());
        }
        match (seen.failure, end) {
            (Some(Failure::Refused(error)), _) => Err(error),
            // The agent may not go on with a run that waits, which waits as before.
            (Some(Failure::Agent(error)), None | Some(RunEnd::Waiting { .. })) => {
                Ok(RunEnd::Failed(error))
            }
            // The journal's end of a failed run may say more than the agent's error.
            (_, Some(end)) => Ok(end),
            (None, None) => {
                Err(StoreError::data("the run has ended, but its end is missing").into())
            }
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
