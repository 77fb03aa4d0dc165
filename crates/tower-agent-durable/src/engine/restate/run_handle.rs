use std::fmt;
use std::sync::Arc;

use super::error::RestateError;
use super::ingress::Ingress;
use super::wire::{Refused, Seen, Settle};
use crate::error::StoreError;
use crate::journal::{JournalError, RunEnd, RunStatus};

/// A run, which a worker makes. Created by [`Engine::start`](super::Engine::start),
/// [`resume`](super::Engine::resume) and [`get`](super::Engine::get).
#[derive(Clone)]
pub struct RunHandle {
    ingress: Ingress,
    run: Arc<str>,
}

impl RunHandle {
    pub(super) fn new(ingress: Ingress, run: Arc<str>) -> Self {
        Self { ingress, run }
    }

    /// Returns the run's id.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// Waits until the run has ended for now, and returns how. It may be asked again.
    ///
    /// Without a worker that has the agent, it waits for one.
    ///
    /// # Errors
    ///
    /// Fails with [`Cancelled`](JournalError::Cancelled) if the run was cancelled, and if it cannot be
    /// made.
    pub async fn end(&self) -> Result<RunEnd, RestateError> {
        let mut ended = None;
        loop {
            let seen = self.ingress.see(&self.run).await?;
            let Some(invocation) = seen.invocation else {
                return self.read(seen);
            };
            if ended.as_ref() == Some(&invocation) {
                // It was killed, and has left no word.
                let why = format!("invocation {invocation} was killed");
                let settle = Settle {
                    invocation,
                    outcome: Err(Refused::Stopped { why }),
                };
                self.ingress
                    .write::<()>(&self.run, "settle", &settle)
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
            .kept
            .is_some_and(|kept| kept.status == RunStatus::Cancelled.as_str())
        {
            return Err(JournalError::Cancelled {
                run: self.run.clone(),
            }
            .into());
        }
        match (seen.refused, end) {
            (Some(Refused::Failed { error }), None) => Ok(RunEnd::Failed(error)),
            (Some(Refused::Failed { .. }), Some(end)) => Ok(end),
            (Some(refused), _) => Err(refused.into_error(&self.run)),
            (None, Some(end)) => Ok(end),
            (None, None) => Err(StoreError::data("the run has ended, and not how").into()),
        }
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
