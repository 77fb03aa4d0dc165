use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tower_agent::agent::SavedRequest;
use tower_agent::{AgentRequest, Resolution};
use uuid::Uuid;

use super::error::RestateError;
use super::ingress::Ingress;
use super::run_handle::RunHandle;
use super::wire::{Resume, Submit};
use crate::error::StoreError;
use crate::journal::{JournalError, RunEnd, RunInfo, RunStatus};
use crate::time::{now, time};

/// As long as the journal's object keeps idempotency keys.
const MOST: Duration = Duration::from_secs(600);

/// A Restate server: the [journal](crate::journal::Journal) of the runs that its
/// [workers](super::Worker) execute. Starts, resumes and cancels them, from any process.
///
/// Clones share the connections.
#[derive(Clone)]
pub struct Engine {
    pub(super) ingress: Ingress,
}

impl Engine {
    /// Creates the client of a server whose ingress has this address, such as `http://restate:8080`. It
    /// connects when it is used.
    ///
    /// # Errors
    ///
    /// Fails if it is not an address that starts with `http://`.
    pub fn new(ingress: &str) -> Result<Self, RestateError> {
        Ok(Self {
            ingress: Ingress::new(ingress)?,
        })
    }

    /// Sets how long a call to the server may take with its retries. Then the call fails, and its run stops.
    /// Defaults to one minute; at most ten, since the server remembers a call for that long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.ingress.timeout = timeout.min(MOST);
        self
    }

    /// Starts a run, which a worker executes with its agent of this name.
    ///
    /// The same request of the same [run](AgentRequest::with_run_id) is one run: started again, it
    /// returns that run. If it has failed, it continues with the call that failed.
    ///
    /// # Errors
    ///
    /// Fails with [`NotSaved`](RestateError::NotSaved) for a request with tools, callbacks or an answer
    /// format, with [`OtherRequest`](JournalError::OtherRequest) if the run works on another request,
    /// and with [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn start(
        &self,
        agent: impl Into<Arc<str>>,
        request: impl Into<AgentRequest>,
    ) -> Result<RunHandle, RestateError> {
        let request = saved(&request.into())?;
        let (run, hash) = (Arc::from(request.run_id()), hash(&request)?);
        let submit = Submit {
            agent: agent.into(),
            request,
            hash,
        };
        self.ingress.write::<()>(&run, "submit", &submit).await?;
        Ok(RunHandle::new(self.ingress.clone(), run))
    }

    /// Resumes a run that waits, with the resolutions of its [interrupts](RunInfo::interrupts).
    ///
    /// The same resolutions resume a run once: delivered again, they return that run.
    ///
    /// # Errors
    ///
    /// Fails with [`NotAsked`](RestateError::NotAsked) if the run does not wait for one of them, with
    /// [`OtherRequest`](JournalError::OtherRequest) if it was resumed with others,
    /// with [`UnknownRun`](JournalError::UnknownRun) if it was not started, and with
    /// [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn resume(
        &self,
        run: &str,
        resolutions: impl IntoIterator<Item = Resolution>,
    ) -> Result<RunHandle, RestateError> {
        let resolutions = Vec::from_iter(resolutions);
        let hash = hash(&resolutions)?;
        self.ingress
            .write::<()>(run, "resume", &Resume { resolutions, hash })
            .await?;
        Ok(RunHandle::new(self.ingress.clone(), run.into()))
    }

    /// Returns a run.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn get(&self, run: &str) -> Result<RunHandle, RestateError> {
        self.ingress.see(run).await?;
        Ok(RunHandle::new(self.ingress.clone(), run.into()))
    }

    /// Returns where a run is, and what it waits for.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if no worker has begun it.
    pub async fn info(&self, run: &str) -> Result<RunInfo, RestateError> {
        let seen = self.ingress.see(run).await?;
        let end = seen.end()?;
        let kept = seen
            .kept
            .ok_or_else(|| JournalError::UnknownRun { run: run.into() })?;
        Ok(RunInfo {
            id: run.into(),
            agent: kept.agent,
            status: RunStatus::from_name(&kept.status),
            interrupts: end.iter().flat_map(RunEnd::interrupts).cloned().collect(),
            error: match end {
                Some(RunEnd::Failed(error)) => Some(error),
                _ => None,
            },
            epoch: kept.epoch,
            started_at: time(kept.started_at),
            updated_at: time(kept.updated_at),
        })
    }

    /// Cancels a run: its worker stops before its next step, and the run cannot continue. A run that has
    /// completed stays completed.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn cancel(&self, run: &str) -> Result<(), RestateError> {
        self.ingress.write(run, "cancel", &now()).await
    }

    /// Deletes a run with its steps. The worker that makes it stops before its next step.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn delete(&self, run: &str) -> Result<(), RestateError> {
        self.ingress.write(run, "delete", &()).await
    }

    /// Returns how often a run was started or taken over; `None` if it is not kept here.
    pub(super) async fn epoch_of(&self, run: &str) -> Result<Option<u64>, RestateError> {
        match self.ingress.see(run).await {
            Ok(seen) => Ok(seen.kept.map(|kept| kept.epoch)),
            Err(RestateError::Journal(JournalError::UnknownRun { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns a request as another process gets it.
fn saved(request: &AgentRequest) -> Result<SavedRequest, RestateError> {
    let what = match request {
        it if !it.tools().is_empty() => "the tools",
        it if it.answer_format().is_some() => "the answer format",
        it if it.has_callbacks() => "the callbacks",
        it if !it.extensions().is_empty() => "the extensions",
        _ => return Ok(SavedRequest::from(request)),
    };
    Err(RestateError::NotSaved { what })
}

/// Returns the name of a request.
fn hash(request: &impl Serialize) -> Result<String, StoreError> {
    let bytes = serde_json::to_vec(request).map_err(StoreError::data)?;
    Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, &bytes).to_string())
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
