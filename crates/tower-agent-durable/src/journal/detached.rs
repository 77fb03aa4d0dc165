//! The operations of the journal in a [database](super::tables), each as a task of its own.

use super::{Begun, Input, Intent, JournalError, Lease, OpenRun, Record, RunEnd, StepId, tables};
use crate::database::{Sql, to_end};

pub(super) async fn start<D>(database: &D, input: &Input) -> Result<OpenRun, JournalError>
where
    D: Sql + Clone + 'static,
{
    let (database, input) = (database.clone(), input.clone());
    to_end(async move { tables::start(&database, &input).await }).await
}

pub(super) async fn begin<D>(
    database: &D,
    run: &OpenRun,
    step: &StepId,
    intent: &Intent,
) -> Result<Begun, JournalError>
where
    D: Sql + Clone + 'static,
{
    let (database, run) = (database.clone(), run.clone());
    let (step, intent) = (step.clone(), intent.clone());
    to_end(async move { tables::begin(&database, &run, &step, &intent).await }).await
}

pub(super) async fn begin_again<D>(database: &D, lease: Lease) -> Result<Lease, JournalError>
where
    D: Sql + Clone + 'static,
{
    let database = database.clone();
    to_end(async move { tables::begin_again(&database, lease).await }).await
}

pub(super) async fn commit<D>(
    database: &D,
    lease: &Lease,
    record: &Record,
) -> Result<(), JournalError>
where
    D: Sql + Clone + 'static,
{
    let (database, lease, record) = (database.clone(), lease.clone(), record.clone());
    to_end(async move { tables::commit(&database, &lease, &record).await }).await
}

pub(super) async fn release<D>(database: &D, lease: &Lease) -> Result<(), JournalError>
where
    D: Sql + Clone + 'static,
{
    let (database, lease) = (database.clone(), lease.clone());
    to_end(async move { tables::release(&database, &lease).await }).await
}

pub(super) async fn end<D>(database: &D, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError>
where
    D: Sql + Clone + 'static,
{
    let (database, run, end) = (database.clone(), run.clone(), end.clone());
    to_end(async move { tables::end(&database, &run, &end).await }).await
}
