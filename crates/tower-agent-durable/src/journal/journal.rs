use std::future::{Future, ready};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::sync::Arc;
use std::time::Duration;

use super::error::JournalError;
use super::input::Input;
use super::intent::Intent;
use super::open_run::OpenRun;
use super::record::StepRecord;
use super::run_end::RunEnd;
use super::step_id::StepId;

/// Keeps the steps of runs. Implemented by `Sqlite` and `Postgres`.
///
/// A method returns once its write is on disk, so that a power cut does not lose it, except for the
/// beginning of a step that may be repeated. If it cannot write, it fails, and the run stops.
pub trait Journal: Clone + Send + Sync + 'static {
    /// Starts a run, or takes it over from a process that has stopped: from now on, everything that
    /// another process writes to it fails with [`TakenOver`](JournalError::TakenOver).
    ///
    /// A request with another fingerprint than the run's latest continues a run that waits, has
    /// failed or has completed, from the checkpoint that the latest has left.
    ///
    /// # Errors
    ///
    /// Fails with [`OtherRequest`](JournalError::OtherRequest) for a request that is not the run's
    /// and does not continue from its latest checkpoint, or that comes while the run has not ended,
    /// with [`EarlierRequest`](JournalError::EarlierRequest) for one with which its conversation
    /// was begun or resumed before the latest, that continues from before that one, or that
    /// contradicts an earlier answer, and with [`Cancelled`](JournalError::Cancelled) if it was
    /// cancelled.
    fn start(&self, input: &Input) -> impl Future<Output = Result<OpenRun, JournalError>> + Send;

    /// Returns the steps that earlier processes have made for the run's latest request: those that
    /// have ended, and those that may not be repeated. A program that does not come to them again
    /// is another one. Called once, after a start of a run that was started before.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    fn earlier_steps(
        &self,
        run: &OpenRun,
    ) -> impl Future<Output = Result<Vec<StepId>, JournalError>> + Send;

    /// Returns how often a run that works says so with [`beat`](Self::beat). Defaults to never.
    fn heartbeat(&self) -> Option<Duration> {
        None
    }

    /// Notes that this process works on the run.
    ///
    /// # Errors
    ///
    /// Fails with [`TakenOver`](JournalError::TakenOver) if it does not have the run any more.
    fn beat(&self, _: &OpenRun) -> impl Future<Output = Result<(), JournalError>> + Send {
        ready(Ok(()))
    }

    /// Begins a step, or returns its recorded outcome.
    ///
    /// The beginning of a step that [may be repeated](Intent::is_repeatable) need not be on disk
    /// before the step has an outcome: without it the call is made again, as it is with it. The
    /// commit must succeed nevertheless.
    ///
    /// # Errors
    ///
    /// Fails if the run was taken over.
    fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> impl Future<Output = Result<StepState, JournalError>> + Send;

    /// Begins an unfinished step again, as another attempt.
    ///
    /// # Errors
    ///
    /// Fails if the run was taken over.
    fn begin_again(
        &self,
        lease: StepLease,
    ) -> impl Future<Output = Result<StepLease, JournalError>> + Send;

    /// Records a step's outcome.
    ///
    /// # Errors
    ///
    /// Fails if the run was taken over.
    fn commit(
        &self,
        lease: &StepLease,
        record: &StepRecord,
    ) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Forgets a step.
    ///
    /// # Errors
    ///
    /// Fails if the run was taken over.
    fn release(&self, lease: &StepLease) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Records the current end of the run.
    ///
    /// # Errors
    ///
    /// Fails if the run was taken over.
    fn end(
        &self,
        run: &OpenRun,
        end: &RunEnd,
    ) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Gives back a run that waited when this process started it, or whose process was lost, and in
    /// which this one has begun no step: a program that may not go on with it leaves it as it was,
    /// with its interrupts and its checkpoint. Returns whether the run is as before; otherwise it
    /// ends with the error. Defaults to no.
    ///
    /// # Errors
    ///
    /// Fails if the run was taken over.
    fn give_back(&self, _: &OpenRun) -> impl Future<Output = Result<bool, JournalError>> + Send {
        ready(Ok(false))
    }
}

/// The right to make a step and to commit it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepLease {
    /// The run.
    pub run: OpenRun,
    /// The step.
    pub step: StepId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The intent in JSON, if a database that is killed may lose it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) unsynced: Option<Arc<str>>,
}

impl StepLease {
    /// Creates a lease, for a journal of your own.
    #[must_use]
    pub fn new(run: OpenRun, step: StepId, attempt: u32) -> Self {
        Self {
            run,
            step,
            attempt,
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            unsynced: None,
        }
    }
}

/// The state of a step.
#[derive(Debug)]
#[non_exhaustive]
pub enum StepState {
    /// It was not begun before.
    Fresh(StepLease),
    /// It has ended.
    Done(Intent, StepRecord),
    /// It was begun, and may have ended without a record.
    Unfinished(StepLease, Intent),
}
