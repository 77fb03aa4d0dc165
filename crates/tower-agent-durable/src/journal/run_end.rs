use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use tower_agent::{Checkpoint, Error, Interrupt};

use super::run_status::RunStatus;
use super::version;
use tower_agent_conversations::StoreError;

/// The current end of a run: it may continue.
///
/// It serialises with its [version](Self::VERSION).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunEnd {
    /// It has responded.
    Completed {
        /// Its conversation.
        checkpoint: Checkpoint,
        /// The session's state.
        state: Map<String, Value>,
    },
    /// It waits for the resolutions of the checkpoint's interrupts.
    Waiting {
        /// The checkpoint from which it continues.
        checkpoint: Checkpoint,
        /// The session's state.
        state: Map<String, Value>,
    },
    /// It has failed. Started again, it continues with the failed step.
    Failed(Error),
}

impl RunEnd {
    /// The version that this crate writes, and the latest that it reads.
    pub const VERSION: u32 = 1;

    /// Creates the end of a run that has not failed: it waits if the checkpoint has open
    /// interrupts.
    #[must_use]
    pub fn new(checkpoint: Checkpoint, state: Map<String, Value>) -> Self {
        if checkpoint.head.interrupts.is_empty() {
            Self::Completed { checkpoint, state }
        } else {
            Self::Waiting { checkpoint, state }
        }
    }

    /// Returns the status of a run with this end.
    #[must_use]
    pub const fn status(&self) -> RunStatus {
        match self {
            Self::Completed { .. } => RunStatus::Completed,
            Self::Waiting { .. } => RunStatus::Waiting,
            Self::Failed(_) => RunStatus::Failed,
        }
    }

    /// Reads the end of a run from JSON.
    ///
    /// # Errors
    ///
    /// Fails with [`NewerFormat`](StoreError::NewerFormat) if a later version of this crate wrote
    /// it.
    pub fn from_json(text: &str) -> Result<Self, StoreError> {
        version::read(text, Self::VERSION)
    }

    /// Returns the open interrupts.
    pub fn interrupts(&self) -> &[Interrupt] {
        match self {
            Self::Waiting { checkpoint, .. } => &checkpoint.head.interrupts,
            Self::Completed { .. } | Self::Failed(_) => &[],
        }
    }

    /// Returns the error of a run that has failed.
    #[must_use]
    pub const fn error(&self) -> Option<&Error> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Completed { .. } | Self::Waiting { .. } => None,
        }
    }
}

/// Its form without the version.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RunEnd", rename_all = "snake_case")]
enum Form {
    Completed {
        checkpoint: Checkpoint,
        state: Map<String, Value>,
    },
    Waiting {
        checkpoint: Checkpoint,
        state: Map<String, Value>,
    },
    Failed(Error),
}

impl Serialize for RunEnd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'e> {
            version: u32,
            #[serde(with = "Form")]
            end: &'e RunEnd,
        }
        Written {
            version: Self::VERSION,
            end: self,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RunEnd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            #[serde(rename = "version", deserialize_with = "version::known::<1, _>")]
            _version: u32,
            #[serde(with = "Form")]
            end: RunEnd,
        }
        Ok(Read::deserialize(deserializer)?.end)
    }
}
