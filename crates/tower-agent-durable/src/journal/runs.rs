use std::sync::Arc;
use std::time::SystemTime;

use sqlx::Row;
use tower_agent::agent::SavedRequest;
use tower_agent::{AgentRequest, Error, Interrupt, Resolution};

use super::sqlite::from_json;
use super::unfinished::path_of;
use super::{Intent, JournalError, RunEnd, RunStatus, StepId};
use crate::Sqlite;
use crate::database::OrFailure;
use crate::time::{now, time};

/// The runs in a database, for those who operate them. Created by [`Sqlite::runs`].
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
pub struct Runs(Sqlite);

/// A run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its id.
    pub id: Arc<str>,
    /// The outermost agent.
    pub agent: Arc<str>,
    /// Where it is.
    pub status: RunStatus,
    /// What it waits for.
    pub interrupts: Vec<Interrupt>,
    /// Why it has failed.
    pub error: Option<Error>,
    /// How often it was started, resumed or taken over.
    pub epoch: u64,
    /// When it was started.
    pub started_at: SystemTime,
    /// When it was last started, resumed or ended.
    pub updated_at: SystemTime,
}

/// A step of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepInfo {
    /// Its name.
    pub id: StepId,
    /// Whether it may be made again if it does not finish.
    pub is_repeatable: bool,
    /// The number of the attempt.
    pub attempt: u32,
    /// When it was begun.
    pub begun_at: SystemTime,
    /// When it ended; `None` if it has not.
    pub ended_at: Option<SystemTime>,
}

impl Sqlite {
    /// Returns the durable runs in the database.
    #[must_use]
    pub fn runs(&self) -> Runs {
        Runs(self.clone())
    }
}

impl Runs {
    /// Returns all runs, the latest first.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn list(&self) -> Result<Vec<RunInfo>, JournalError> {
        self.query("ORDER BY started_at DESC, run", "").await
    }

    /// Returns a run.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn get(&self, run: &str) -> Result<RunInfo, JournalError> {
        let found = self.query("WHERE run = ?", run).await?.pop();
        found.ok_or_else(|| JournalError::UnknownRun { run: run.into() })
    }

    async fn query(&self, which: &'static str, run: &str) -> Result<Vec<RunInfo>, JournalError> {
        let sql = match which.starts_with("WHERE") {
            true => "SELECT * FROM tower_agent_runs WHERE run = ?",
            false => "SELECT * FROM tower_agent_runs ORDER BY started_at DESC, run",
        };
        let mut query = sqlx::query(sql);
        if which.starts_with("WHERE") {
            query = query.bind(run.to_owned());
        }
        let rows = query.fetch_all(self.0.readers()).await.or_failure()?;
        let info = |row: &sqlx::sqlite::SqliteRow| -> Result<RunInfo, JournalError> {
            let ended =
                row.try_get::<Option<&str>, _>("ended").or_failure()?.map(from_json::<RunEnd>);
            let ended = ended.transpose()?;
            Ok(RunInfo {
                id: row.try_get::<String, _>("run").or_failure()?.into(),
                agent: row.try_get::<String, _>("agent").or_failure()?.into(),
                status: RunStatus::from_name(row.try_get("status").or_failure()?),
                interrupts: ended.iter().flat_map(RunEnd::interrupts).cloned().collect(),
                error: match ended {
                    Some(RunEnd::Failed(error)) => Some(error),
                    _ => None,
                },
                epoch: u64::try_from(row.try_get::<i64, _>("epoch").or_failure()?)
                    .unwrap_or_default(),
                started_at: time(row.try_get("started_at").or_failure()?),
                updated_at: time(row.try_get("updated_at").or_failure()?),
            })
        };
        rows.iter().map(info).collect()
    }

    /// Returns the steps of a run, in the order in which they began.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn steps(&self, run: &str) -> Result<Vec<StepInfo>, JournalError> {
        self.get(run).await?;
        let rows = sqlx::query(
            "SELECT id, intent, attempt, begun_at, ended_at FROM tower_agent_run_steps \
             WHERE run = ? ORDER BY position",
        );
        let rows = rows.bind(run).fetch_all(self.0.readers()).await.or_failure()?;
        let info = |row: &sqlx::sqlite::SqliteRow| -> Result<StepInfo, JournalError> {
            let intent: Intent = from_json(row.try_get("intent").or_failure()?)?;
            Ok(StepInfo {
                id: from_json(row.try_get("id").or_failure()?)?,
                is_repeatable: intent.is_repeatable,
                attempt: row.try_get("attempt").or_failure()?,
                begun_at: time(row.try_get("begun_at").or_failure()?),
                ended_at: row.try_get::<Option<i64>, _>("ended_at").or_failure()?.map(time),
            })
        };
        rows.iter().map(info).collect()
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
        let row = sqlx::query(
            "SELECT r.status, r.ended, i.request FROM tower_agent_runs r \
             JOIN tower_agent_run_inputs i ON i.run = r.run AND i.number = r.input WHERE r.run = ?",
        );
        let row = row.bind(run).fetch_optional(self.0.readers()).await.or_failure()?;
        let Some(row) = row else { return Err(JournalError::UnknownRun { run: run.into() }) };
        if RunStatus::from_name(row.try_get("status").or_failure()?) == RunStatus::Cancelled {
            return Err(JournalError::Cancelled { run: run.into() });
        }
        let saved: SavedRequest = from_json(row.try_get("request").or_failure()?)?;
        let ended = row
            .try_get::<Option<&str>, _>("ended")
            .or_failure()?
            .map(from_json::<RunEnd>)
            .transpose()?;
        let Some(RunEnd::Waiting { checkpoint, state }) = ended else { return Ok(saved.into()) };
        let kept = kept(saved.resolutions(), &checkpoint.interrupts);
        let settings = AgentRequest::from(saved).settings().clone();
        Ok(AgentRequest::resume(checkpoint)
            .with_settings(settings)
            .with_state(state.into())
            .with_resolutions(kept)
            .with_run_id(run))
    }

    /// Cancels a run: a process that works on it stops before its next step, and it cannot go on.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn cancel(&self, run: &str) -> Result<(), JournalError> {
        let mut tx = self.0.begin().await?;
        let written = sqlx::query(
            "UPDATE tower_agent_runs SET status = ?, epoch = epoch + 1, updated_at = ? WHERE run = ?",
        );
        let written = written.bind(RunStatus::Cancelled.as_str()).bind(now()).bind(run);
        let written = written.execute(tx.connection()).await.or_failure()?;
        tx.commit().await?;
        some(written.rows_affected(), run)
    }

    /// Deletes a run with its steps. A process that works on it stops before its next step.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn delete(&self, run: &str) -> Result<(), JournalError> {
        let mut tx = self.0.begin().await?;
        let deleted = sqlx::query("DELETE FROM tower_agent_runs WHERE run = ?").bind(run);
        let deleted = deleted.execute(tx.connection()).await.or_failure()?;
        tx.commit().await?;
        some(deleted.rows_affected(), run)
    }
}

/// Returns the earlier resolutions that a call still needs which was asked about because it was not
/// finished: what was decided in it is not kept. A question that is asked again needs a new answer.
fn kept(earlier: &[Resolution], interrupts: &[Interrupt]) -> Vec<Resolution> {
    let unfinished: Vec<_> = interrupts.iter().filter_map(path_of).collect();
    let is_of_one = |id: &str| unfinished.contains(&id);
    let is_asked = |id: &str| interrupts.iter().any(|it| it.id == id);
    let kept = earlier.iter().filter(|it| is_of_one(&it.id) && !is_asked(&it.id));
    kept.cloned().collect()
}

fn some(rows: u64, run: &str) -> Result<(), JournalError> {
    match rows {
        0 => Err(JournalError::UnknownRun { run: run.into() }),
        _ => Ok(()),
    }
}
