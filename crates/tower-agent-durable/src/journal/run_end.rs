use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use tower_agent::{Checkpoint, Error, Interrupt};

use super::version;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use crate::error::StoreError;

/// How a run has ended, for now.
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
        /// From where it continues.
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

    /// Returns the end of a run that has not failed.
    pub(crate) fn new(checkpoint: Checkpoint, state: Map<String, Value>) -> Self {
        match checkpoint.interrupts[..] {
            [] => Self::Completed { checkpoint, state },
            _ => Self::Waiting { checkpoint, state },
        }
    }

    /// Reads one from JSON, unless it is of a later version.
    #[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
    pub(crate) fn read(text: &str) -> Result<Self, StoreError> {
        version::read(text, Self::VERSION)
    }

    /// Returns what the run waits for.
    #[must_use]
    pub fn interrupts(&self) -> &[Interrupt] {
        match self {
            Self::Waiting { checkpoint, .. } => &checkpoint.interrupts,
            _ => &[],
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
