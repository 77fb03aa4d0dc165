use serde::Serialize;
use serde::de::DeserializeOwned;

use super::engine::Engine;
use super::error::RestateError;
use super::wire::{Begin, Change, End, HasBegun, Start, Started, Write};
use crate::error::StoreError;
use crate::journal::{
    Begun, Input, Intent, Journal, JournalError, Lease, OpenRun, Record, RunEnd, RunStatus, StepId,
};
use crate::time::now;

impl Journal for Engine {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        let run = input.request.run_id();
        let Input {
            agent,
            request,
            fingerprint,
            is_retried,
        } = input.clone();
        let start = Start {
            agent,
            request,
            fingerprint,
            is_retried,
            at: now(),
        };
        let Started {
            epoch,
            input,
            conversation,
        } = write(self, run, "start", &start).await?;
        Ok(OpenRun::new(run, epoch, input, conversation))
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<Begun, JournalError> {
        let (step, intent) = (step.clone(), intent.clone());
        let begin = Begin {
            epoch: run.epoch,
            step,
            intent,
            at: now(),
        };
        let begun = write(self, &run.id, "begin", &begin).await?;
        let lease = |attempt| Lease::new(run.clone(), begin.step.clone(), attempt);
        Ok(match begun {
            HasBegun::Fresh => Begun::Fresh(lease(1)),
            HasBegun::Done { intent, record } => Begun::Done(intent, Record::read(&record)?),
            HasBegun::Unfinished { intent, attempt } => Begun::Unfinished(lease(attempt), intent),
        })
    }

    async fn begin_again(&self, lease: Lease) -> Result<Lease, JournalError> {
        change(self, &lease, Change::BeginAgain).await?;
        Ok(Lease {
            attempt: lease.attempt.saturating_add(1),
            ..lease
        })
    }

    async fn commit(&self, lease: &Lease, record: &Record) -> Result<(), JournalError> {
        let record = serde_json::to_string(record).map_err(StoreError::data)?;
        change(self, lease, Change::Commit(record)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        change(self, lease, Change::Release).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        let status = RunStatus::of(end).as_str().to_owned();
        let end = serde_json::to_string(end).map_err(StoreError::data)?;
        let end = End {
            epoch: run.epoch,
            status,
            end,
            at: now(),
        };
        write(self, &run.id, "end", &end).await
    }
}

async fn change(engine: &Engine, lease: &Lease, change: Change) -> Result<(), JournalError> {
    let (epoch, step) = (lease.run.epoch, lease.step.key());
    let change = Write {
        epoch,
        step,
        attempt: lease.attempt,
        change,
        at: now(),
    };
    write(engine, &lease.run.id, "write", &change).await
}

async fn write<O: DeserializeOwned>(
    engine: &Engine,
    run: &str,
    handler: &str,
    input: &impl Serialize,
) -> Result<O, JournalError> {
    engine
        .ingress
        .write(run, handler, input)
        .await
        .map_err(RestateError::into_journal)
}
