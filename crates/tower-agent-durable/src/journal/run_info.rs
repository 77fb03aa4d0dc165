use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::{Error, Interrupt};

use super::run_status::RunStatus;

/// A run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its id.
    pub id: Arc<str>,
    /// The outermost agent.
    pub agent: Arc<str>,
    /// Where it is.
    pub status: RunStatus,
    /// What it waits for.
    pub interrupts: Vec<Interrupt>,
    /// Why it has failed.
    pub error: Option<Error>,
    /// How often it was started, resumed or taken over.
    pub epoch: u64,
    /// When it was started.
    pub started_at: SystemTime,
    /// When the journal last wrote to it.
    pub updated_at: SystemTime,
}
