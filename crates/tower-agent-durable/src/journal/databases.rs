//! The databases as journals. Each operation is a task of its own, which runs to its end even if
//! the call that waits for it is dropped.

use std::time::Duration;

use super::error::JournalError;
use super::input::Input;
use super::intent::Intent;
use super::journal::{Journal, StepLease, StepState};
use super::open_run::OpenRun;
use super::record::StepRecord;
use super::run_end::RunEnd;
use super::run_info::RunInfo;
use super::runs::Runs;
use super::step_id::StepId;
use super::tables;
#[cfg(feature = "postgres")]
use crate::database::Postgres;
#[cfg(feature = "sqlite")]
use crate::database::Sqlite;
use crate::database::to_end;

// A macro, since a blanket implementation over `Sql` would make that private trait public, and keep
// others from implementing `Journal` for a type of their own.
macro_rules! keeps_runs {
    ($database:ty) => {
        impl $database {
            /// Returns the durable runs in the database.
            #[must_use]
            pub fn runs(&self) -> Runs {
                Runs::new(self.clone())
            }
        }

        impl Journal for $database {
            async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
                // A task needs owned values, so each operation clones its arguments.
                let database = self.clone();
                let input = input.clone();
                to_end(async move { tables::start(&database, &input).await }).await
            }

            async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
                // In a task as well: a run that is not polled, as one whose answer was accepted
                // just now, would keep the connection for which it waits.
                let database = self.clone();
                let run = run.clone();
                to_end(async move { tables::earlier_steps(&database, &run).await }).await
            }

            fn heartbeat(&self) -> Option<Duration> {
                Some(RunInfo::HEARTBEAT)
            }

            async fn beat(&self, run: &OpenRun) -> Result<(), JournalError> {
                let database = self.clone();
                let run = run.clone();
                to_end(async move { tables::beat(&database, &run).await }).await
            }

            async fn begin(
                &self,
                run: &OpenRun,
                step: &StepId,
                intent: &Intent,
            ) -> Result<StepState, JournalError> {
                let database = self.clone();
                let run = run.clone();
                let step = step.clone();
                let intent = intent.clone();
                to_end(async move { tables::begin(&database, &run, &step, &intent).await }).await
            }

            async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
                let database = self.clone();
                to_end(async move { tables::begin_again(&database, lease).await }).await
            }

            async fn commit(
                &self,
                lease: &StepLease,
                record: &StepRecord,
            ) -> Result<(), JournalError> {
                let database = self.clone();
                let lease = lease.clone();
                let record = record.clone();
                to_end(async move { tables::commit(&database, &lease, &record).await }).await
            }

            async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
                let database = self.clone();
                let lease = lease.clone();
                to_end(async move { tables::release(&database, &lease).await }).await
            }

            async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
                let database = self.clone();
                let run = run.clone();
                let end = end.clone();
                to_end(async move { tables::end(&database, &run, &end).await }).await
            }

            async fn give_back(&self, run: &OpenRun) -> Result<bool, JournalError> {
                let database = self.clone();
                let run = run.clone();
                to_end(async move { tables::give_back(&database, &run).await }).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
keeps_runs!(Sqlite);
#[cfg(feature = "postgres")]
keeps_runs!(Postgres);
