//! A journal in memory, without a database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, OpenRun, RunEnd, StepId, StepLease, StepRecord, StepState,
};

/// Keeps records as a database would: as text.
#[derive(Clone, Default)]
pub struct InMemory(Arc<Mutex<Steps>>);

type Steps = HashMap<StepId, (Intent, Option<String>)>;

impl Journal for InMemory {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        serde_json::to_string(&input.request).unwrap();
        self.0.lock().unwrap().clear();
        Ok(OpenRun::new(input.request.run_id(), 1, 1, 1))
    }

    async fn earlier_steps(&self, _: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        Ok(Vec::new())
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        let mut steps = self.0.lock().unwrap();
        let lease = StepLease::new(run.clone(), step.clone(), 1);
        Ok(match steps.get(step) {
            Some((intent, Some(record))) => {
                StepState::Done(intent.clone(), serde_json::from_str(record).unwrap())
            }
            Some((intent, None)) => StepState::Unfinished(lease, intent.clone()),
            None => {
                steps.insert(step.clone(), (intent.clone(), None));
                StepState::Fresh(lease)
            }
        })
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        Ok(lease)
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        let record: String = serde_json::to_string(record).unwrap();
        if let Some(step) = self.0.lock().unwrap().get_mut(&lease.step) {
            step.1 = Some(record);
        }
        Ok(())
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.0.lock().unwrap().remove(&lease.step);
        Ok(())
    }

    async fn end(&self, _: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        serde_json::to_string(end).unwrap();
        Ok(())
    }
}
