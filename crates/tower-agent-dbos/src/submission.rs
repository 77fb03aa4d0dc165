//! A request of a run as a workflow of DBOS.

use std::sync::Arc;

use dbos::sysdb::types::{WorkflowRecord, WorkflowStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tower_agent::Resolution;

use crate::error::DbosError;
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{Fingerprint, Input, JournalError, RunKey};

/// The key of the label among the attributes of a workflow.
const KEY: &str = "tower_agent";

/// The label of a request, with which it is found without reading it. The requests of a run are
/// numbered: each begins when the one before it has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) run: Arc<str>,
    /// The user whom the run belongs to.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) number: u32,
    /// The request.
    pub(crate) request: Fingerprint,
    /// Its resolutions, each by itself.
    pub(crate) answers: Vec<Fingerprint>,
}

impl Label {
    pub(crate) fn new(input: &Input, number: u32) -> Result<Self, DbosError> {
        Ok(Self {
            run: input.request.run_id().into(),
            user: input.user.clone(),
            number,
            request: input.fingerprint.clone(),
            answers: answers(input.request.resolutions())?,
        })
    }

    /// Returns the workflow's id. It is the same for the same request of a run, so that DBOS makes
    /// it once.
    pub(crate) fn workflow(&self) -> String {
        format!("{}/{}", self.key().to_text(), self.number)
    }

    /// Returns the key of the run.
    pub(crate) fn key(&self) -> RunKey {
        RunKey::new(self.run.clone()).with_user(self.user.clone())
    }

    pub(crate) fn attributes(&self) -> Result<Map<String, Value>, DbosError> {
        let label = serde_json::to_value(self).map_err(StoreError::data);
        let label = label.map_err(JournalError::from)?;
        Ok(Map::from_iter([(KEY.to_owned(), label)]))
    }

    /// Returns the attributes that every request of a run has, as a filter.
    pub(crate) fn pattern(run: &RunKey) -> String {
        json!({ KEY: { "run": run.run, "user": run.user } }).to_string()
    }

    /// Returns the attributes that every request of a user's runs has, as a filter.
    pub(crate) fn pattern_of_user(user: &str) -> String {
        json!({ KEY: { "user": user } }).to_string()
    }
}

/// Returns the fingerprints of resolutions.
pub(crate) fn answers(resolutions: &[Resolution]) -> Result<Vec<Fingerprint>, DbosError> {
    // One for each, so that a request is found again by some of its answers, in any order.
    let mut fingerprints = Vec::with_capacity(resolutions.len());
    for resolution in resolutions {
        let mut fingerprint = Fingerprint::default();
        fingerprint
            .add(resolution.id.to_string(), &resolution.outcome)
            .map_err(JournalError::from)?;
        fingerprints.push(fingerprint);
    }
    Ok(fingerprints)
}

/// A request that was submitted.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    pub(crate) agent: String,
    pub(crate) label: Label,
    pub(crate) status: WorkflowStatus,
}

impl Submission {
    /// Returns none for a workflow that is not a request of a run, such as one that an operator has
    /// forked.
    pub(crate) fn read(record: WorkflowRecord) -> Option<Self> {
        let attributes: Value = serde_json::from_str(record.attributes.as_deref()?).ok()?;
        let label: Label = serde_json::from_value(attributes.get(KEY)?.clone()).ok()?;
        // A fork has the attributes of its original, and another id.
        let is_ours = record.workflow_id == label.workflow();
        is_ours.then_some(Self {
            agent: record.name?,
            label,
            status: record.status,
        })
    }

    /// Returns whether it waits for a worker, or one works on it.
    pub(crate) fn is_open(&self) -> bool {
        matches!(
            self.status,
            WorkflowStatus::Enqueued | WorkflowStatus::Delayed | WorkflowStatus::Pending
        )
    }

    /// Returns whether it continues when it is submitted again.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(
            self.status,
            WorkflowStatus::Error | WorkflowStatus::MaxRecoveryAttemptsExceeded
        )
    }

    /// Returns whether it has all of these answers.
    pub(crate) fn answers(&self, answers: &[Fingerprint]) -> bool {
        answers
            .iter()
            .all(|answer| self.label.answers.contains(answer))
    }
}
