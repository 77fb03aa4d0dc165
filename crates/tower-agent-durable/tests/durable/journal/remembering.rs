//! A journal that remembers.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, OpenRun, RunEnd, StepId, StepLease, StepRecord, StepState,
};

/// A journal that remembers what it was given.
#[derive(Clone)]
pub(super) struct Remembering {
    pub(super) inner: Sqlite,
    pub(super) given: Arc<Mutex<Vec<Value>>>,
}

impl Remembering {
    fn remember(&self, given: &impl serde::Serialize) {
        self.given
            .lock()
            .unwrap()
            .push(serde_json::to_value(given).unwrap());
    }
}

impl Journal for Remembering {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.remember(&input.request);
        self.inner.start(input).await
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        self.inner.earlier_steps(run).await
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        self.remember(intent);
        self.inner.begin(run, step, intent).await
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        self.inner.begin_again(lease).await
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        self.remember(record);
        self.inner.commit(lease, record).await
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.inner.release(lease).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.remember(end);
        self.inner.end(run, end).await
    }
}
