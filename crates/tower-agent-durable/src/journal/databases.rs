//! The databases as journals. Each operation is a task of its own, which goes on to its end.

use super::error::JournalError;
use super::input::Input;
use super::intent::Intent;
use super::journal::{Begun, Journal, Lease, OpenRun};
use super::record::Record;
use super::run_end::RunEnd;
use super::runs::Runs;
use super::step_id::StepId;
use super::tables;
#[cfg(feature = "postgres")]
use crate::database::Postgres;
#[cfg(feature = "sqlite")]
use crate::database::Sqlite;
use crate::database::to_end;

// A blanket implementation would show a trait of this crate's own to who has another journal.
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
                let (database, input) = (self.clone(), input.clone());
                to_end(async move { tables::start(&database, &input).await }).await
            }

            async fn begin(
                &self,
                run: &OpenRun,
                step: &StepId,
                intent: &Intent,
            ) -> Result<Begun, JournalError> {
                let (database, run) = (self.clone(), run.clone());
                let (step, intent) = (step.clone(), intent.clone());
                to_end(async move { tables::begin(&database, &run, &step, &intent).await }).await
            }

            async fn begin_again(&self, lease: Lease) -> Result<Lease, JournalError> {
                let database = self.clone();
                to_end(async move { tables::begin_again(&database, lease).await }).await
            }

            async fn commit(&self, lease: &Lease, record: &Record) -> Result<(), JournalError> {
                let (database, lease, record) = (self.clone(), lease.clone(), record.clone());
                to_end(async move { tables::commit(&database, &lease, &record).await }).await
            }

            async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
                let (database, lease) = (self.clone(), lease.clone());
                to_end(async move { tables::release(&database, &lease).await }).await
            }

            async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
                let (database, run, end) = (self.clone(), run.clone(), end.clone());
                to_end(async move { tables::end(&database, &run, &end).await }).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
keeps_runs!(Sqlite);
#[cfg(feature = "postgres")]
keeps_runs!(Postgres);
