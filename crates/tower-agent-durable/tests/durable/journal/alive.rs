//! Which runs have a process, and whether the journal has what was written.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, OpenRun, RunEnd, RunInfo, RunStatus, StepId, StepLease,
    StepRecord, StepState,
};
use tower_agent_durable::{Sqlite, StoreError};

use crate::support::folder::Folder;
use crate::support::{Count, calling, durable, journal_error, request, saying, waiting};

/// A journal whose runs show all the time that they work.
#[derive(Clone)]
struct Beating {
    inner: Sqlite,
    beats: Arc<Notify>,
}

impl Journal for Beating {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.inner.start(input).await
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        self.inner.earlier_steps(run).await
    }

    fn heartbeat(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    async fn beat(&self, run: &OpenRun) -> Result<(), JournalError> {
        let beat = self.inner.beat(run).await;
        self.beats.notify_one();
        beat
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        self.inner.begin(run, step, intent).await
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        self.inner.begin_again(lease).await
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        self.inner.commit(lease, record).await
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.inner.release(lease).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.inner.end(run, end).await
    }
}

#[tokio::test]
async fn a_run_that_works_shows_it_while_its_tool_is_running() {
    let database = Sqlite::in_memory().await.unwrap();
    let beats = Arc::<Notify>::default();
    let journal = Beating {
        inner: database.clone(),
        beats: beats.clone(),
    };
    let (tool, goes_on, has_begun) = waiting(&Count::default());
    let agent = durable(calling(&["pay"], &Count::default()), journal).tool(tool);
    let run = tokio::spawn(agent.build().unwrap().run(request()));
    has_begun.await.unwrap();
    let begun = database.runs().get("run 1").await.unwrap();
    let seen = loop {
        beats.notified().await;
        let seen = database.runs().get("run 1").await.unwrap();
        if seen.updated_at > begun.updated_at {
            break seen;
        }
    };
    let most = 3 * RunInfo::HEARTBEAT;
    assert!(seen.is_alive(seen.updated_at) && !seen.is_alive(seen.updated_at + most));
    goes_on.notify_one();
    run.await.unwrap().unwrap();
    let ended = database.runs().get("run 1").await.unwrap();
    assert_eq!(ended.status, RunStatus::Completed);
    assert!(!ended.is_alive(SystemTime::now()));
}

#[tokio::test]
async fn a_process_whose_run_was_taken_over_shows_no_life() {
    let database = Sqlite::in_memory().await.unwrap();
    let input = crate::support::conformance::input("Do it.", "run 1").await;
    let old = database.start(&input).await.unwrap();
    let new = database.start(&input).await.unwrap();
    database.beat(&new).await.unwrap();
    let refused = database.beat(&old).await;
    assert!(matches!(refused, Err(JournalError::TakenOver { .. })));
    database.runs().cancel("run 1").await.unwrap();
    database.beat(&new).await.unwrap_err();
}

#[tokio::test]
async fn a_record_that_was_changed_in_the_database_is_not_replayed() {
    let folder = Folder::new("changed");
    let database = Sqlite::open(folder.file("runs.db")).await.unwrap();
    let agent = || durable(saying("Done."), database.clone()).build().unwrap();
    agent().run(request()).await.unwrap();
    let file = format!("sqlite:{}", folder.file("runs.db").display());
    let other = sqlx::SqlitePool::connect(&file).await.unwrap();
    // The last record, after which no call compares its messages.
    let change = "UPDATE tower_agent_run_steps SET record = replace(record, 'Done.', 'Gone.')";
    sqlx::query(change).execute(&other).await.unwrap();
    let error = agent().run(request()).await.unwrap_err();
    let error = journal_error(&error);
    let is_data = matches!(error, JournalError::Store(StoreError::Data(_)));
    assert!(
        is_data && error.to_string().contains("model call 0"),
        "{error}"
    );
}

#[tokio::test]
async fn a_process_of_a_deleted_run_writes_nothing_to_another_run_of_its_id() {
    let database = Sqlite::in_memory().await.unwrap();
    let input = Input::new(&request()).unwrap();
    let deleted = database.start(&input).await.unwrap();
    database.runs().delete("run 1").await.unwrap();
    let other = database.start(&input).await.unwrap();
    assert_eq!((deleted.epoch, other.epoch), (1, 1));

    let end = RunEnd::Failed(tower_agent::Error::abort("it is over"));
    let refused = database.end(&deleted, &end).await.unwrap_err();
    assert!(
        matches!(refused, JournalError::UnknownRun { .. }),
        "{refused}"
    );
    let refused = database.beat(&deleted).await.unwrap_err();
    assert!(
        matches!(refused, JournalError::TakenOver { .. }),
        "{refused}"
    );
    let info = database.runs().get("run 1").await.unwrap();
    assert_eq!(info.status, RunStatus::Running);
    database.end(&other, &end).await.unwrap();
}
