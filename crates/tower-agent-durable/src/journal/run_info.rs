use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tower_agent::{Error, Interrupt};
use tower_agent_conversations::{ConversationKey, Policy};

use super::run_end::RunEnd;
use super::run_key::RunKey;
use super::run_status::RunStatus;

/// A summary of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// The id.
    pub id: Arc<str>,
    /// The outermost agent.
    pub agent: Arc<str>,
    /// The [version](super::Durable::version) of the program that has started it last.
    pub version: Option<Arc<str>>,
    /// The user whom the run belongs to, if it has one.
    pub user: Option<Arc<str>>,
    /// The stored conversation that the run is part of, if a [policy](Self::policy) keeps it.
    pub conversation: Option<ConversationKey>,
    /// The policy that keeps the conversation. It alone goes on with the run.
    pub policy: Option<Policy>,
    /// The status.
    pub status: RunStatus,
    /// The open interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The error, if the run has failed.
    pub error: Option<Error>,
    /// The number of times that it was started, resumed or taken over.
    pub epoch: u64,
    /// The time of the first start.
    pub started_at: SystemTime,
    /// The time of the last write, or of the last sign of life.
    pub updated_at: SystemTime,
}

impl RunInfo {
    /// The time between two signs of life of a run that works.
    pub const HEARTBEAT: Duration = Duration::from_secs(10);

    /// Returns whether a process works on the run: it has shown so within the time of three
    /// heartbeats.
    ///
    /// To start such a run again would take it from that process. The clocks of all machines must
    /// agree better than that. A run in an engine is the engine's to start again.
    #[must_use]
    pub fn is_alive(&self, now: SystemTime) -> bool {
        self.status == RunStatus::Running && now < self.updated_at + 3 * Self::HEARTBEAT
    }

    /// Creates the summary of a run from its current end, if it has one, for a journal of your own.
    /// The run has epoch 0 and started at `at`.
    #[must_use]
    pub fn new(
        id: impl Into<Arc<str>>,
        agent: impl Into<Arc<str>>,
        status: RunStatus,
        end: Option<&RunEnd>,
        at: SystemTime,
    ) -> Self {
        Self {
            id: id.into(),
            agent: agent.into(),
            version: None,
            user: None,
            conversation: None,
            policy: None,
            status,
            interrupts: end.map_or_else(Vec::new, |end| end.interrupts().to_vec()),
            error: end.and_then(RunEnd::error).cloned(),
            epoch: 0,
            started_at: at,
            updated_at: at,
        }
    }
}

impl From<&RunInfo> for RunKey {
    fn from(run: &RunInfo) -> Self {
        Self::new(run.id.clone()).with_user(run.user.clone())
    }
}
