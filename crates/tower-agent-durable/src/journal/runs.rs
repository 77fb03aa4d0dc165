use std::sync::Arc;

use tower_agent::AgentRequest;
use tower_agent::agent::SavedRequest;

use super::next_request::next_request;
use super::tables::{from_json, unknown};
use super::{Intent, JournalError, RunEnd, RunInfo, RunStatus, StepInfo};
use crate::database::{Row, Sql, Value};
use crate::time::{now, time};

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
        self.write(CANCEL, run, &[run.into(), cancelled.into(), now().into()]).await
    }

    /// Deletes a run with its steps. A process that works on it stops before its next step.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn delete(&self, run: &str) -> Result<(), JournalError> {
        self.write(DELETE, run, &[run.into()]).await
    }

    async fn write(
        &self,
        sql: &'static str,
        run: &str,
        values: &[Value<'_>],
    ) -> Result<(), JournalError> {
        let mut tx = self.0.begin().await?;
        let written = tx.execute(sql, values).await?;
        tx.commit().await?;
        match written {
            0 => Err(unknown(run)),
            _ => Ok(()),
        }
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
    row.optional_text("ended")?.map(from_json).transpose()
}
