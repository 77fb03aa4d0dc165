use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::AgentRequest;
use tower_agent::agent::SavedRequest;

use super::next_request::next_request;
use super::tables::{from_json, unknown};
use super::{Intent, JournalError, RunEnd, RunInfo, RunStatus, StepInfo};
use crate::database::{Row, Sql, Value};
use crate::time::{millis, now, time};

/// The runs in a database, for those who operate them. Created by `Sqlite::runs` and
/// `Postgres::runs`.
///
/// ```
/// use tower_agent_durable::Sqlite;
/// use tower_agent_durable::journal::RunStatus;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let database = Sqlite::in_memory().await?;
/// for run in database.runs().list().await? {
///     if run.status == RunStatus::Waiting {
///         println!("{} waits for {:?}", run.id, run.interrupts);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Runs(Arc<dyn Sql>);

const ALL: &str = "\
    SELECT run, agent, status, ended, epoch, started_at, updated_at FROM tower_agent_runs \
    ORDER BY started_at DESC, run";

const ONE: &str = "\
    SELECT run, agent, status, ended, epoch, started_at, updated_at FROM tower_agent_runs \
    WHERE run = $1";

const STEPS: &str = "\
    SELECT id, intent, attempt, begun_at, ended_at FROM tower_agent_run_steps \
    WHERE run = $1 ORDER BY position";

const REQUEST: &str = "\
    SELECT r.status, r.ended, i.request FROM tower_agent_runs r \
    JOIN tower_agent_run_inputs i ON i.run = r.run AND i.number = r.input WHERE r.run = $1";

const CANCEL: &str = "\
    UPDATE tower_agent_runs SET status = $2, epoch = epoch + 1, updated_at = $3 WHERE run = $1";

const DELETE: &str = "DELETE FROM tower_agent_runs WHERE run = $1";

const DELETE_ENDED: &str = "\
    DELETE FROM tower_agent_runs WHERE updated_at < $1 AND status IN ($2, $3, $4)";

impl Runs {
    pub(super) fn new(database: impl Sql + 'static) -> Self {
        Self(Arc::new(database))
    }

    /// Returns all runs, the latest first.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn list(&self) -> Result<Vec<RunInfo>, JournalError> {
        self.0.read(ALL, &[]).await?.iter().map(RunInfo::read).collect()
    }

    /// Returns a run.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn get(&self, run: &str) -> Result<RunInfo, JournalError> {
        let rows = self.0.read(ONE, &[run.into()]).await?;
        rows.first().ok_or_else(|| unknown(run)).and_then(RunInfo::read)
    }

    /// Returns the steps of a run, in the order in which they began.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn steps(&self, run: &str) -> Result<Vec<StepInfo>, JournalError> {
        self.get(run).await?;
        self.0.read(STEPS, &[run.into()]).await?.iter().map(StepInfo::read).collect()
    }

    /// Returns the request with which a run goes on, to be given to the agent that began it: the same
    /// one again for a run that has stopped, failed or completed, which makes only the steps that are
    /// not done; for a run that waits, the one that resumes it, to which its
    /// [resolutions](AgentRequest::with_resolutions) are added.
    ///
    /// Tools, callbacks and the answer format that were given with the run are not part of it; add them
    /// again.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist, or was cancelled.
    pub async fn request(&self, run: &str) -> Result<AgentRequest, JournalError> {
        let rows = self.0.read(REQUEST, &[run.into()]).await?;
        let row = rows.first().ok_or_else(|| unknown(run))?;
        if RunStatus::from_name(row.text("status")?) == RunStatus::Cancelled {
            return Err(JournalError::Cancelled { run: run.into() });
        }
        let saved: SavedRequest = from_json(row.text("request")?)?;
        Ok(next_request(saved, ended(row)?))
    }

    /// Cancels a run: a process that works on it stops before its next step, and it cannot go on.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn cancel(&self, run: &str) -> Result<(), JournalError> {
        let cancelled = RunStatus::Cancelled.as_str();
        self.write_one(CANCEL, run, &[run.into(), cancelled.into(), now().into()]).await
    }

    /// Deletes a run with its steps. A process that works on it stops before its next step.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn delete(&self, run: &str) -> Result<(), JournalError> {
        self.write_one(DELETE, run, &[run.into()]).await
    }

    /// Deletes the runs that have completed, failed or were cancelled before this time, with their
    /// steps; returns their number. Call it now and then: nothing else deletes runs.
    ///
    /// A run that is running or waits is never deleted. A deleted run is forgotten: started again under
    /// the same id, it makes all of its calls. So keep runs for longer than anyone may start them again.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # use tower_agent_durable::Sqlite;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let database = Sqlite::in_memory().await?;
    /// let month = Duration::from_secs(30 * 24 * 60 * 60);
    /// let deleted = database.runs().delete_ended(SystemTime::now() - month).await?;
    /// # assert_eq!(deleted, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn delete_ended(&self, before: SystemTime) -> Result<u64, JournalError> {
        let ended = [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled];
        let [one, two, three] = ended.map(|status| status.as_str().into());
        self.write(DELETE_ENDED, &[millis(before).into(), one, two, three]).await
    }

    async fn write_one(
        &self,
        sql: &'static str,
        run: &str,
        values: &[Value<'_>],
    ) -> Result<(), JournalError> {
        match self.write(sql, values).await? {
            0 => Err(unknown(run)),
            _ => Ok(()),
        }
    }

    async fn write(&self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, JournalError> {
        let mut tx = self.0.begin().await?;
        let written = tx.execute(sql, values).await?;
        tx.commit().await?;
        Ok(written)
    }
}

impl RunInfo {
    fn read(row: &Row) -> Result<Self, JournalError> {
        let ended = ended(row)?;
        Ok(Self {
            id: row.text("run")?.into(),
            agent: row.text("agent")?.into(),
            status: RunStatus::from_name(row.text("status")?),
            interrupts: ended.iter().flat_map(RunEnd::interrupts).cloned().collect(),
            error: match ended {
                Some(RunEnd::Failed(error)) => Some(error),
                _ => None,
            },
            epoch: row.number("epoch")?,
            started_at: time(row.number("started_at")?),
            updated_at: time(row.number("updated_at")?),
        })
    }
}

impl StepInfo {
    fn read(row: &Row) -> Result<Self, JournalError> {
        let intent: Intent = from_json(row.text("intent")?)?;
        Ok(Self {
            id: from_json(row.text("id")?)?,
            is_repeatable: intent.is_repeatable,
            attempt: row.number("attempt")?,
            begun_at: time(row.number("begun_at")?),
            ended_at: row.optional_number("ended_at")?.map(time),
        })
    }
}

fn ended(row: &Row) -> Result<Option<RunEnd>, JournalError> {
    Ok(row.optional_text("ended")?.map(RunEnd::read).transpose()?)
}
