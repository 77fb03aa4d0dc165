use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::Error;
use tower_agent::context::Effects;

use super::version;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use crate::error::StoreError;

/// How a step has ended: its response or error, and its effects on the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The version of the form.
    #[serde(deserialize_with = "version::known::<1, _>")]
    pub version: u32,
    /// What it has returned.
    pub outcome: Outcome,
    /// What it has changed in the run.
    #[serde(default)]
    pub effects: Effects,
    /// What a callback has ended after the response, such as the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Error>,
}

/// What a step has returned.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The response, as JSON.
    Response(Value),
    /// The error.
    Error(Error),
}

impl Record {
    /// The version that this crate writes, and the latest that it reads.
    pub const VERSION: u32 = 1;

    /// Reads one from JSON, unless it is of a later version.
    #[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
    pub(crate) fn read(text: &str) -> Result<Self, StoreError> {
        version::read(text, Self::VERSION)
    }

    pub(super) fn new(outcome: Outcome, effects: Effects, ending: Option<Error>) -> Self {
        Self {
            version: Self::VERSION,
            outcome,
            effects,
            ending,
        }
    }
}
