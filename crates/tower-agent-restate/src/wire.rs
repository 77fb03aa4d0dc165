//! The messages between clients and objects, and the stored state of the objects.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tower_agent::agent::SavedRequest;
use tower_agent::{Error, Resolution};

use crate::error::RestateError;
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{
    Fingerprint, Input, Intent, JournalError, OpenRun, RunEnd, RunKey, RunStatus, StepId,
};

/// The object that stores a run.
pub(crate) const JOURNAL: &str = "TowerAgentJournal";
/// The object that makes it.
pub(crate) const RUN: &str = "TowerAgentRun";

/// The object that knows the runs of a user.
pub(crate) const USER: &str = "TowerAgentUser";

/// The answer of an object.
pub(crate) type Answer<T> = Result<T, RestateError>;

/// The reason why an invocation has not made its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    /// The agent has failed.
    Agent(Error),
    /// The run may not be made.
    Refused(RestateError),
}

impl Failure {
    /// Returns the failure of a run, or the error for which the server must try the run again.
    ///
    /// The server gives a run to one worker at a time. So if another worker seems to have taken the
    /// run over, that was a call of the previous worker that came late, and this worker is the one
    /// to continue.
    pub(crate) fn of(error: Error) -> Result<Self, JournalError> {
        if let Some(refused @ RestateError::OtherJournal { .. }) = error.downcast_ref() {
            return Ok(Self::Refused(refused.clone()));
        }
        match error.downcast_ref::<JournalError>() {
            None => Ok(Self::Agent(error)),
            Some(error @ JournalError::TakenOver { .. }) => Err(error.clone()),
            // Stored data stays as it is, so a second try would read the same.
            Some(
                error @ JournalError::Store(StoreError::NewerFormat { .. } | StoreError::Data(_)),
            ) => Ok(Self::Refused(error.clone().into())),
            // The server may be back for the next try.
            Some(error @ JournalError::Store(_)) => Err(error.clone()),
            Some(error) => Ok(Self::Refused(error.clone().into())),
        }
    }
}

/// The stored state of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredRun {
    pub(crate) agent: Arc<str>,
    pub(crate) run: OpenRun,
    pub(crate) status: String,
    /// The fingerprints of the conversation's requests, latest last.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The resolutions in these requests, in order.
    pub(crate) answers: Vec<Resolution>,
    pub(crate) started_at: SystemTime,
    pub(crate) updated_at: SystemTime,
}

impl StoredRun {
    /// A run that was submitted and not started.
    pub(crate) fn new(key: &str, agent: Arc<str>, at: SystemTime) -> Self {
        Self {
            agent,
            run: OpenRun::new(RunKey::from_text(key), 0, 0, 0),
            status: RunStatus::Running.as_str().to_owned(),
            fingerprints: Vec::new(),
            answers: Vec::new(),
            started_at: at,
            updated_at: at,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredStep {
    pub(crate) id: StepId,
    pub(crate) intent: Intent,
    /// The number of the request in which it was last written.
    pub(crate) input: u32,
    pub(crate) attempt: u32,
    pub(crate) begun_at: SystemTime,
    pub(crate) ended_at: Option<SystemTime>,
    /// The record as text: a worker of another version must not drop fields that it does not know.
    pub(crate) record: Option<String>,
}

/// A submitted request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) agent: Arc<str>,
    pub(crate) invocation: String,
    pub(crate) is_open: bool,
    /// A second submission repeats a request that has failed.
    pub(crate) is_to_repeat: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Submit {
    pub(crate) agent: Arc<str>,
    pub(crate) request: SavedRequest,
    /// The hash of the request.
    pub(crate) hash: String,
}

/// The resolutions for a run that waits.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Resume {
    pub(crate) resolutions: Vec<Resolution>,
    /// The hash of the resolutions.
    pub(crate) hash: String,
    pub(crate) at: SystemTime,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settle {
    pub(crate) invocation: String,
    pub(crate) outcome: Result<(), Failure>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) input: Input,
    pub(crate) at: SystemTime,
}

/// The process that works on a run: each has a number of its own, and so has a run that was deleted
/// and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) row: i64,
    pub(crate) epoch: u64,
}

impl Process {
    /// Returns the process that has opened this run.
    pub(crate) fn of(run: &OpenRun) -> Self {
        Self {
            row: run.row(),
            epoch: run.epoch,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) process: Process,
    pub(crate) step: StepId,
    pub(crate) intent: Intent,
    pub(crate) at: SystemTime,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HasBegun {
    Fresh,
    Done { intent: Intent, record: String },
    Unfinished { intent: Intent, attempt: u32 },
}

/// A change of a step by the holder of its lease.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Write {
    pub(crate) process: Process,
    pub(crate) step: String,
    pub(crate) attempt: u32,
    pub(crate) change: Change,
    pub(crate) at: SystemTime,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    BeginAgain,
    Commit(String),
    Release,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) process: Process,
    pub(crate) status: String,
    pub(crate) end: String,
    pub(crate) at: SystemTime,
}

/// An operator's view of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) run: Option<StoredRun>,
    /// The invocation that makes it.
    pub(crate) invocation: Option<String>,
    /// The failure of the latest invocation.
    pub(crate) failure: Option<Failure>,
    pub(crate) end: Option<String>,
}

impl Seen {
    pub(crate) fn end(&self) -> Result<Option<RunEnd>, StoreError> {
        self.end.as_deref().map(RunEnd::from_json).transpose()
    }
}
