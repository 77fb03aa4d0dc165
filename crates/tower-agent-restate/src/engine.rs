use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tower_agent::agent::SavedRequest;
use tower_agent::{AgentRequest, Request, Resolution};
use uuid::Uuid;

use crate::error::RestateError;
use crate::ingress::Ingress;
use crate::run_handle::RunHandle;
use crate::wire::{Resume, Submit};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{JournalError, RunInfo, RunStatus};

/// The longest timeout: the server forgets idempotency keys after it, and a later try would be a second call.
const MOST: Duration = Duration::from_secs(600);

/// A Restate server: the [journal](tower_agent_durable::journal::Journal) of the runs that its
/// [workers](super::Worker) execute. Starts, resumes and cancels them, from any process.
///
/// Clones share the connections.
#[derive(Clone)]
pub struct Engine {
    pub(crate) ingress: Ingress,
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
        let run = Arc::from(request.run_id());
        // By its content, since a client that repeats a call has no other name for it.
        let hash = hash(&request)?;
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
    /// [`Expired`](JournalError::Expired) if one comes too late, also if no worker starts in time, with
    /// [`OtherRequest`](JournalError::OtherRequest) if it was resumed with others,
    /// with [`UnknownRun`](JournalError::UnknownRun) if it was not started, and with
    /// [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn resume(
        &self,
        run: &str,
        resolutions: impl IntoIterator<Item = Resolution>,
    ) -> Result<RunHandle, RestateError> {
        let resolutions = Vec::from_iter(resolutions);
        let resume = Resume {
            hash: hash(&resolutions)?,
            resolutions,
            at: SystemTime::now(),
        };
        self.ingress.write::<()>(run, "resume", &resume).await?;
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

    /// Returns the status of a run, and its open interrupts.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if no worker has begun it.
    pub async fn info(&self, run: &str) -> Result<RunInfo, RestateError> {
        let seen = self.ingress.see(run).await?;
        let end = seen.end()?;
        let stored = seen
            .run
            .ok_or_else(|| JournalError::UnknownRun { run: run.into() })?;
        let status = RunStatus::from_name(&stored.status);
        let mut info = RunInfo::new(run, stored.agent, status, end.as_ref(), stored.started_at);
        info.epoch = stored.run.epoch;
        info.updated_at = stored.updated_at;
        Ok(info)
    }

    /// Cancels a run: its worker stops before its next step, and the run cannot continue. A run that has
    /// completed stays completed.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn cancel(&self, run: &str) -> Result<(), RestateError> {
        self.ingress.write(run, "cancel", &SystemTime::now()).await
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
    pub(crate) async fn epoch_of(&self, run: &str) -> Result<Option<u64>, RestateError> {
        match self.ingress.see(run).await {
            Ok(seen) => Ok(seen.run.map(|stored| stored.run.epoch)),
            Err(RestateError::Journal(JournalError::UnknownRun { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns a request as data, or fails if a part of it would be lost.
fn saved(request: &AgentRequest) -> Result<SavedRequest, RestateError> {
    let what = if !request.tools().is_empty() {
        "the tools"
    } else if request.answer_format().is_some() {
        "the answer format"
    } else if request.has_callbacks() {
        "the callbacks"
    } else if !request.extensions().is_empty() || !request.context().extensions().is_empty() {
        "the extensions"
    } else {
        return Ok(SavedRequest::from(request));
    };
    Err(RestateError::NotSaved { what: what.into() })
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
