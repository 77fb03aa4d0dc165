use super::runs::Runs;
use super::{
    Begun, Input, Intent, Journal, JournalError, Lease, OpenRun, Record, RunEnd, StepId, detached,
};
use crate::Sqlite;

impl Sqlite {
    /// Returns the durable runs in the database.
    #[must_use]
    pub fn runs(&self) -> Runs {
        Runs::new(self.clone())
    }
}

impl Journal for Sqlite {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        detached::start(self, input).await
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<Begun, JournalError> {
        detached::begin(self, run, step, intent).await
    }

    async fn begin_again(&self, lease: Lease) -> Result<Lease, JournalError> {
        detached::begin_again(self, lease).await
    }

    async fn commit(&self, lease: &Lease, record: &Record) -> Result<(), JournalError> {
        detached::commit(self, lease, record).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        detached::release(self, lease).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        detached::end(self, run, end).await
    }
}
