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
use crate::wire::{Process, Resume, Submit};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{JournalError, RunInfo, RunKey, RunStatus};

/// The longest timeout: the server forgets idempotency keys after it, and a later try would be a
/// second call.
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
    /// Creates the client of a server whose ingress has this address, such as
    /// `https://restate.example.com` or `http://restate:8080`. It connects when it is used.
    ///
    /// A server is trusted if its certificate has a root that browsers trust, or one of
    /// [`roots`](Self::roots). Over `http://` nothing is encrypted: use it in a private network.
    ///
    /// # Errors
    ///
    /// Fails with [`Ingress`](RestateError::Ingress) if it is no such address.
    pub fn new(ingress: &str) -> Result<Self, RestateError> {
        Ok(Self {
            ingress: Ingress::new(ingress)?,
        })
    }

    /// Sets the token that the ingress asks for, which is sent as `Authorization: Bearer`: that of
    /// Restate Cloud, or of a proxy in front of the server. Defaults to none.
    ///
    /// # Errors
    ///
    /// Fails with [`Ingress`](RestateError::Ingress) if the address does not start with `https://`,
    /// since anybody on the way could read the token, and if it cannot be sent in a header.
    pub fn token(self, token: &str) -> Result<Self, RestateError> {
        let ingress = self.ingress.with_token(token)?;
        Ok(Self { ingress })
    }

    /// Trusts servers whose certificate has one of these roots as well: one or more certificates as
    /// PEM.
    ///
    /// # Errors
    ///
    /// Fails with [`Ingress`](RestateError::Ingress) if there is no certificate in the text.
    pub fn roots(self, pem: impl AsRef<[u8]>) -> Result<Self, RestateError> {
        let ingress = self.ingress.with_roots(pem.as_ref())?;
        Ok(Self { ingress })
    }

    /// Sets how long a call to the server may take with its retries. Then the call fails, and its
    /// run stops. Defaults to one minute; at most ten, since the server remembers a call for that
    /// long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.ingress.timeout = timeout.min(MOST);
        self
    }

    /// Starts a run, which a worker executes with its agent of this name.
    ///
    /// The same request of the same [run](AgentRequest::with_run_id) is one run: started again, it
    /// returns that run. If it has failed, it continues with the call that failed. The run belongs
    /// to the user of the [key](RunKey::request) that made the request, if one did.
    ///
    /// # Errors
    ///
    /// Fails with [`NotSaved`](RestateError::NotSaved) for a request with tools, callbacks or an
    /// answer format, with [`OtherRequest`](JournalError::OtherRequest) if the run works on another
    /// request, and with [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn start(
        &self,
        agent: impl Into<Arc<str>>,
        request: impl Into<AgentRequest>,
    ) -> Result<RunHandle, RestateError> {
        let (key, request) = saved(request.into())?;
        // By its content, since a client that repeats a call has no other name for it.
        let hash = hash(&request)?;
        let submit = Submit {
            agent: agent.into(),
            request,
            hash,
        };
        self.ingress.write::<()>(&key, "submit", &submit).await?;
        Ok(RunHandle::new(self.ingress.clone(), key))
    }

    /// Resumes a run that waits, with the resolutions of its [interrupts](RunInfo::interrupts).
    ///
    /// The same resolutions resume a run once: delivered again, they return that run.
    ///
    /// # Errors
    ///
    /// Fails with [`NotAsked`](RestateError::NotAsked) if the run does not wait for one of them,
    /// with [`Unfit`](JournalError::Unfit) if one comes too late, also if no worker starts in time,
    /// does not fit, or is not this person's to give, with
    /// [`OtherRequest`](JournalError::OtherRequest) if it was resumed with others, with
    /// [`UnknownRun`](JournalError::UnknownRun) if it was not started, and with
    /// [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn resume(
        &self,
        run: impl Into<RunKey>,
        resolutions: impl IntoIterator<Item = Resolution>,
    ) -> Result<RunHandle, RestateError> {
        let resolutions = Vec::from_iter(resolutions);
        let resume = Resume {
            hash: hash(&resolutions)?,
            resolutions,
            at: SystemTime::now(),
        };
        let key = run.into();
        self.ingress.write::<()>(&key, "resume", &resume).await?;
        Ok(RunHandle::new(self.ingress.clone(), key))
    }

    /// Returns a run.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn get(&self, run: impl Into<RunKey>) -> Result<RunHandle, RestateError> {
        let key = run.into();
        self.ingress.see(&key).await?;
        Ok(RunHandle::new(self.ingress.clone(), key))
    }

    /// Returns the status of a run, and its open interrupts.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if no worker has begun it.
    pub async fn info(&self, run: impl Into<RunKey>) -> Result<RunInfo, RestateError> {
        let key = run.into();
        let seen = self.ingress.see(&key).await?;
        let end = seen.end()?;
        let stored = seen.run.ok_or_else(|| JournalError::UnknownRun {
            run: key.run.clone(),
        })?;
        let status = RunStatus::from_name(&stored.status);
        let mut info = RunInfo::new(
            key.run,
            stored.agent,
            status,
            end.as_ref(),
            stored.started_at,
        );
        info.user = key.user;
        info.epoch = stored.run.epoch;
        info.updated_at = stored.updated_at;
        Ok(info)
    }

    /// Cancels a run: its worker stops before its next step, and the run cannot continue. A run
    /// that has completed stays completed.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn cancel(&self, run: impl Into<RunKey>) -> Result<(), RestateError> {
        let now = SystemTime::now();
        self.ingress.write(&run.into(), "cancel", &now).await
    }

    /// Deletes a run with its steps. The worker that makes it stops before its next step.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn delete(&self, run: impl Into<RunKey>) -> Result<(), RestateError> {
        self.ingress.write(&run.into(), "delete", &()).await
    }

    /// Deletes all runs of a user with their steps, and returns their number. Workers that make one
    /// of them stop before its next step. Sessions are in a store of their own, which has a
    /// `delete_user`, too.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached. Some of the runs may be deleted then.
    pub async fn delete_user(&self, user: &str) -> Result<u64, RestateError> {
        let mut deleted = 0;
        loop {
            let runs = self.ingress.runs_of(user).await?;
            if runs.is_empty() {
                return Ok(deleted);
            }
            for run in runs {
                self.delete(run).await?;
                deleted += 1;
            }
        }
    }

    /// Returns how often a run was started or taken over; `None` if it is not kept here.
    pub(crate) async fn process_of(&self, run: &RunKey) -> Result<Option<Process>, RestateError> {
        match self.ingress.see(run).await {
            Ok(seen) => Ok(seen.run.map(|stored| Process::of(&stored.run))),
            Err(RestateError::Journal(JournalError::UnknownRun { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns a request as data, or fails if a part of it would be lost.
fn saved(mut request: AgentRequest) -> Result<(RunKey, SavedRequest), RestateError> {
    // The key names the objects of the run, and comes back with them.
    let key = request.extensions_mut().remove::<RunKey>();
    let user = key.and_then(|key| key.user.clone());
    let key = RunKey::new(request.context().run_id()).with_user(user);
    let mut of_run = request.context().extensions().clone();
    of_run.remove::<RunKey>();
    let what = if !request.tools().is_empty() {
        "the tools"
    } else if request.answer_format().is_some() {
        "the answer format"
    } else if request.has_callbacks() {
        "the callbacks"
    } else if !request.extensions().is_empty() || !of_run.is_empty() {
        "the extensions"
    } else {
        return Ok((key, SavedRequest::from(&request)));
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
