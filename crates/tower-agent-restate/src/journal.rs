use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::error::RestateError;
use crate::wire::{Begin, Change, End, HasBegun, Process, Start, Write};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, OpenRun, RunEnd, RunKey, StepId, StepLease, StepRecord,
    StepState,
};

impl Journal for Engine {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        let start = Start {
            input: input.clone(),
            at: SystemTime::now(),
        };
        write(self, &input.key(), "start", &start).await
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        let process = Process::of(run);
        let steps = self.ingress.ask(&run.key(), "steps", &process).await;
        steps.map_err(RestateError::into_journal)
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        let begin = Begin {
            process: Process::of(run),
            step: step.clone(),
            intent: intent.clone(),
            at: SystemTime::now(),
        };
        match write(self, &run.key(), "begin", &begin).await? {
            HasBegun::Fresh => Ok(StepState::Fresh(StepLease::new(run.clone(), begin.step, 1))),
            HasBegun::Done { intent, record } => {
                Ok(StepState::Done(intent, StepRecord::from_json(&record)?))
            }
            HasBegun::Unfinished { intent, attempt } => {
                let lease = StepLease::new(run.clone(), begin.step, attempt);
                Ok(StepState::Unfinished(lease, intent))
            }
        }
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        change(self, &lease, Change::BeginAgain).await?;
        let attempt = lease.attempt.saturating_add(1);
        Ok(StepLease::new(lease.run, lease.step, attempt))
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        // As text: the object that stores it may be of another version, and must not drop what it
        // does not know.
        let record = serde_json::to_string(record).map_err(StoreError::data)?;
        change(self, lease, Change::Commit(record)).await
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        change(self, lease, Change::Release).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        let status = end.status().as_str().to_owned();
        let end = serde_json::to_string(end).map_err(StoreError::data)?;
        let end = End {
            process: Process::of(run),
            status,
            end,
            at: SystemTime::now(),
        };
        write(self, &run.key(), "end", &end).await
    }

    async fn give_back(&self, run: &OpenRun) -> Result<bool, JournalError> {
        write(self, &run.key(), "give_back", &Process::of(run)).await
    }
}

async fn change(engine: &Engine, lease: &StepLease, change: Change) -> Result<(), JournalError> {
    let change = Write {
        process: Process::of(&lease.run),
        step: lease.step.key(),
        attempt: lease.attempt,
        change,
        at: SystemTime::now(),
    };
    write(engine, &lease.run.key(), "write", &change).await
}

async fn write<O: DeserializeOwned>(
    engine: &Engine,
    run: &RunKey,
    handler: &str,
    input: &impl Serialize,
) -> Result<O, JournalError> {
    engine
        .ingress
        .write(run, handler, input)
        .await
        .map_err(RestateError::into_journal)
}
