use serde::{Deserialize, Serialize};
use tower_agent::{Error, Interrupt};

use super::run_end::RunEnd;
use super::version;
use tower_agent_conversations::StoreError;

/// The end of a run as a list shows it. It is stored beside the end, so that a list reads no
/// conversation.
#[derive(Serialize, Deserialize)]
pub(super) struct RunSummary {
    version: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) interrupts: Vec<Interrupt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
}

impl RunSummary {
    /// Reads a summary from JSON. Fails if a later version of this crate wrote it.
    pub(super) fn from_json(text: &str) -> Result<Self, StoreError> {
        version::read(text, RunEnd::VERSION)
    }
}

impl From<&RunEnd> for RunSummary {
    fn from(end: &RunEnd) -> Self {
        Self {
            version: RunEnd::VERSION,
            interrupts: end.interrupts().to_vec(),
            error: end.error().cloned(),
        }
    }
}
