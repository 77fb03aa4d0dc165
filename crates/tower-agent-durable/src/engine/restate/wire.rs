//! What the clients say to the objects, and what these keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::agent::SavedRequest;
use tower_agent::{Error, Resolution};

use super::error::RestateError;
use crate::error::StoreError;
use crate::journal::{Fingerprint, Intent, JournalError, RunEnd, RunStatus, StepId};

/// The object that keeps a run.
pub(super) const JOURNAL: &str = "TowerAgentJournal";
/// The object that makes it.
pub(super) const RUN: &str = "TowerAgentRun";

/// What an object answers.
pub(super) type Answer<T> = Result<T, Refused>;

/// A [`RestateError`] as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refused {
    NonDeterminism {
        step: StepId,
        part: String,
    },
    TakenOver,
    Cancelled,
    UnknownRun,
    OtherRequest,
    EarlierRequest,
    NoRun {
        call: String,
    },
    Repeated {
        step: StepId,
    },
    OtherJournal,
    UnknownAgent {
        agent: Arc<str>,
    },
    NotAsked {
        interrupt: String,
    },
    Stopped {
        why: String,
    },
    /// The agent has failed.
    Failed {
        error: Error,
    },
    Newer {
        found: u32,
        newest: u32,
    },
    Data {
        why: String,
    },
}

impl Refused {
    pub(super) fn into_error(self, run: &str) -> RestateError {
        let run = run.into();
        let of_journal = match self {
            Self::OtherJournal => return RestateError::OtherJournal { run },
            Self::UnknownAgent { agent } => return RestateError::UnknownAgent { agent },
            Self::NotAsked { interrupt } => return RestateError::NotAsked { run, interrupt },
            Self::Stopped { why } => return RestateError::Stopped { run, why },
            Self::Failed { error } => StoreError::data(error).into(),
            Self::NonDeterminism { step, part } => JournalError::NonDeterminism { step, part },
            Self::TakenOver => JournalError::TakenOver { run },
            Self::Cancelled => JournalError::Cancelled { run },
            Self::UnknownRun => JournalError::UnknownRun { run },
            Self::OtherRequest => JournalError::OtherRequest { run },
            Self::EarlierRequest => JournalError::EarlierRequest { run },
            Self::NoRun { call } => JournalError::NoRun {
                call,
                why: "a layer must pass on the request that it received",
            },
            Self::Repeated { step } => JournalError::Repeated { step },
            Self::Newer { found, newest } => StoreError::NewerFormat { found, newest }.into(),
            Self::Data { why } => StoreError::data(why).into(),
        };
        of_journal.into()
    }

    /// Returns what ends a run with this error, or the error for which it is made again: the server hands
    /// it to one worker, so another that has taken it over is a call of the one before that came late.
    pub(super) fn of(error: Error) -> Result<Self, JournalError> {
        if let Some(RestateError::OtherJournal { .. }) = error.downcast_ref() {
            return Ok(Self::OtherJournal);
        }
        match error.downcast_ref::<JournalError>() {
            Some(error @ JournalError::TakenOver { .. }) => Err(error.clone()),
            Some(error) => Ok(Self::of_journal(error)?),
            None => Ok(Self::Failed { error }),
        }
    }

    pub(super) fn of_journal(error: &JournalError) -> Result<Self, StoreError> {
        Ok(match error.clone() {
            JournalError::NonDeterminism { step, part } => Self::NonDeterminism { step, part },
            JournalError::TakenOver { .. } => Self::TakenOver,
            JournalError::Cancelled { .. } => Self::Cancelled,
            JournalError::UnknownRun { .. } => Self::UnknownRun,
            JournalError::OtherRequest { .. } => Self::OtherRequest,
            JournalError::EarlierRequest { .. } => Self::EarlierRequest,
            JournalError::NoRun { call, .. } => Self::NoRun { call },
            JournalError::Repeated { step } => Self::Repeated { step },
            JournalError::Store(error) => Self::of_store(error)?,
        })
    }

    fn of_store(error: StoreError) -> Result<Self, StoreError> {
        match error {
            StoreError::NewerFormat { found, newest } => Ok(Self::Newer { found, newest }),
            StoreError::Data(why) => Ok(Self::Data {
                why: why.to_string(),
            }),
            error => Err(error),
        }
    }
}

/// What is known of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) agent: Arc<str>,
    pub(super) epoch: u64,
    pub(super) input: u32,
    pub(super) conversation: u32,
    pub(super) status: String,
    /// Those of the requests of the conversation; the last is that of the latest.
    pub(super) fingerprints: Vec<Fingerprint>,
    /// What these have answered, in order.
    #[serde(default)]
    pub(super) answers: Vec<Resolution>,
    pub(super) started_at: i64,
    pub(super) updated_at: i64,
}

impl Kept {
    /// One that nobody has started.
    pub(super) fn new(agent: Arc<str>, at: i64) -> Self {
        Self {
            agent,
            epoch: 0,
            input: 0,
            conversation: 0,
            status: RunStatus::Running.as_str().to_owned(),
            fingerprints: Vec::new(),
            answers: Vec::new(),
            started_at: at,
            updated_at: at,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptStep {
    pub(super) id: StepId,
    pub(super) intent: Intent,
    pub(super) attempt: u32,
    pub(super) begun_at: i64,
    pub(super) ended_at: Option<i64>,
    /// As text, so that a worker of another version keeps it as it is.
    pub(super) record: Option<String>,
}

/// A request that was handed in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) agent: Arc<str>,
    pub(super) invocation: String,
    pub(super) is_open: bool,
    /// Whether it is made again if it is handed in again.
    pub(super) is_to_repeat: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Submit {
    pub(super) agent: Arc<str>,
    pub(super) request: SavedRequest,
    /// That of the request.
    pub(super) hash: String,
}

/// The answers to what a run waits for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Resume {
    pub(super) resolutions: Vec<Resolution>,
    /// That of the resolutions.
    pub(super) hash: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Settle {
    pub(super) invocation: String,
    pub(super) outcome: Answer<()>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) agent: Arc<str>,
    pub(super) request: SavedRequest,
    pub(super) fingerprint: Fingerprint,
    #[serde(default)]
    pub(super) is_retried: bool,
    pub(super) at: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) epoch: u64,
    pub(super) input: u32,
    pub(super) conversation: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) epoch: u64,
    pub(super) step: StepId,
    pub(super) intent: Intent,
    pub(super) at: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HasBegun {
    Fresh,
    Done { intent: Intent, record: String },
    Unfinished { intent: Intent, attempt: u32 },
}

/// A change of a step by who has its lease.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Write {
    pub(super) epoch: u64,
    pub(super) step: String,
    pub(super) attempt: u32,
    pub(super) change: Change,
    pub(super) at: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    BeginAgain,
    Commit(String),
    Release,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) epoch: u64,
    pub(super) status: String,
    pub(super) end: String,
    pub(super) at: i64,
}

/// A run as those who operate it see it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) kept: Option<Kept>,
    /// What makes it.
    pub(super) invocation: Option<String>,
    /// Why it was not made.
    pub(super) refused: Option<Refused>,
    pub(super) end: Option<String>,
}

impl Seen {
    pub(super) fn end(&self) -> Result<Option<RunEnd>, StoreError> {
        self.end.as_deref().map(RunEnd::read).transpose()
    }
}
