use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower_agent::Error;
use tower_agent::context::Effects;

use super::version;
use tower_agent_conversations::StoreError;

/// The end of a step: its response or error, and its effects on the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepRecord {
    /// The version of the form.
    #[serde(deserialize_with = "version::known::<1, _>")]
    pub version: u32,
    /// The outcome.
    pub outcome: StepOutcome,
    /// The effects on the run.
    #[serde(default, skip_serializing_if = "Effects::is_empty")]
    pub effects: Effects,
    /// The ending that an `after` raised, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Error>,
}

/// The outcome of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepOutcome {
    /// The response, as JSON. It is kept as text: most are written and never read again.
    Response(Box<RawValue>),
    /// The error.
    Error(Error),
}

impl StepRecord {
    /// The version that this crate writes, and the latest that it reads.
    pub const VERSION: u32 = 1;

    /// Reads a record from JSON.
    ///
    /// # Errors
    ///
    /// Fails with [`NewerFormat`](StoreError::NewerFormat) if a later version of this crate wrote
    /// it.
    pub fn from_json(text: &str) -> Result<Self, StoreError> {
        version::read(text, Self::VERSION)
    }

    pub(super) fn new(outcome: StepOutcome, effects: Effects, ending: Option<Error>) -> Self {
        Self {
            version: Self::VERSION,
            outcome,
            effects,
            ending,
        }
    }
}
