use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::AgentRequest;
use tower_agent::agent::SavedRequest;
use tower_agent::message::Messages;

use super::error::JournalError;
use super::intent::Intent;
use super::kept_in::KeptIn;
use super::next_request::next_request;
use super::run_end::RunEnd;
use super::run_info::RunInfo;
use super::run_key::RunKey;
use super::run_messages::{self, RunMessages};
use super::run_query::RunQuery;
use super::run_status::RunStatus;
use super::run_summary::RunSummary;
use super::step_id::StepId;
use super::step_info::StepInfo;
use super::tables::{ended, from_json, other_conversation, unknown};
use crate::database::{Durability, Row, Sql, Value, Wait, to_end};
use crate::time::{millis, now, time};
use crate::user_data;
use tower_agent_conversations::{ConversationKey, Policy, StoreError};

/// The runs in a database, for those who operate them. Created by `Sqlite::runs` and
/// `Postgres::runs`.
///
/// ```
/// use tower_agent_durable::Sqlite;
/// use tower_agent_durable::journal::{RunQuery, RunStatus};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let database = Sqlite::in_memory().await?;
/// let waiting = RunQuery::new().status(RunStatus::Waiting);
/// for run in database.runs().list(&waiting).await? {
///     println!("{} waits for {:?}", run.id, run.interrupts);
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`resume_lost`](Self::resume_lost) goes on with the runs whose processes have died.
#[derive(Clone, Debug)]
pub struct Runs(Arc<dyn Sql>);

/// Returns a statement that reads runs, with the rest of it.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT run, agent, version, owner, kept_in, status, summary, epoch, started_at, updated_at \
             FROM tower_agent_runs WHERE ",
            $rest
        )
    };
}

/// Returns a statement that reads a page of runs, with a condition in front of the others.
macro_rules! list {
    ($condition:literal) => {
        concat!(
            select!($condition),
            "started_at >= $1 AND started_at < $2 AND (started_at, run, owner) < ($3, $4, $5) \
             AND ($6 = '' OR agent = $6) AND ($7 = '' OR status = $7) \
             AND ($9 = '' OR version = $9) \
             ORDER BY started_at DESC, run DESC, owner DESC LIMIT $8"
        )
    };
}

const LIST: &str = list!("");

// Another statement, so that the database finds an index for it.
const LIST_OF_USER: &str = list!("owner = $10 AND ");

const ONE: &str = select!("owner = $1 AND run = $2");

const WAITING: &str = select!("agent = $1 AND status = $2");

const STEPS: &str = "\
    SELECT s.id, s.intent, s.attempt, s.begun_at, s.ended_at FROM tower_agent_run_steps s \
    JOIN tower_agent_runs r ON r.id = s.run WHERE r.owner = $1 AND r.run = $2 ORDER BY s.position";

const REQUEST: &str = "\
    SELECT r.id, r.kept_in, r.epoch, r.status, r.ended, r.shared, i.request, i.messages FROM tower_agent_runs r \
    JOIN tower_agent_run_inputs i ON i.run = r.id AND i.number = r.input \
    WHERE r.owner = $1 AND r.run = $2";

const CANCEL: &str = "\
    UPDATE tower_agent_runs SET status = $3, epoch = epoch + 1, updated_at = $4 \
    WHERE owner = $1 AND run = $2 AND status <> $5";

const CLAIM: &str = "\
    UPDATE tower_agent_runs SET updated_at = $4 \
    WHERE owner = $1 AND run = $2 AND status = $3 AND epoch = $5 AND updated_at = $6";

const DELETE: &str = "DELETE FROM tower_agent_runs WHERE owner = $1 AND run = $2";

const DELETE_ENDED: &str = "\
    DELETE FROM tower_agent_runs WHERE updated_at < $1 AND status IN ($2, $3, $4)";

const DELETE_UNTOUCHED: &str = "DELETE FROM tower_agent_runs WHERE updated_at < $1";

impl Runs {
    pub(super) fn new(database: impl Sql + 'static) -> Self {
        Self(Arc::new(database))
    }

    /// Returns a page of runs, those that started last first. It reads no conversation.
    ///
    /// A run whose end cannot be read, such as one that a later version of this crate has written,
    /// has the status [`Unreadable`](RunStatus::Unreadable); [`get`](Self::get) returns why.
    ///
    /// ```
    /// # use tower_agent_durable::Sqlite;
    /// use tower_agent_durable::journal::{RunQuery, RunStatus};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let runs = Sqlite::in_memory().await?.runs();
    /// let mut query = RunQuery::of_agent("clerk").status(RunStatus::Failed);
    /// loop {
    ///     let page = runs.list(&query).await?;
    ///     let Some(last) = page.last() else { break };
    ///     query = query.after(last);
    ///     for run in page {
    ///         println!("{}: {:?}", run.id, run.error);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn list(&self, query: &RunQuery) -> Result<Vec<RunInfo>, JournalError> {
        let since = query.since.map_or(i64::MIN, millis);
        let before = query.before.map_or(i64::MAX, millis);
        let last = query.after.as_ref();
        let mut values = vec![
            since.into(),
            before.into(),
            last.map_or(i64::MAX, |last| millis(last.started_at)).into(),
            last.map_or("", |last| &last.id).into(),
            last.and_then(|last| last.user.as_deref())
                .unwrap_or_default()
                .into(),
            query.agent.as_deref().unwrap_or_default().into(),
            query.status.map_or("", |status| status.as_str()).into(),
            query.limit.into(),
            query.version.as_deref().unwrap_or_default().into(),
        ];
        let sql = match &query.user {
            Some(user) => {
                values.push((&**user).into());
                LIST_OF_USER
            }
            None => LIST,
        };
        let rows = self.0.read(sql, &values).await?;
        rows.iter().map(RunInfo::read_or_mark).collect()
    }

    /// Returns the runs of an agent that wait, in any order.
    pub(crate) async fn waiting(&self, agent: &str) -> Result<Vec<RunInfo>, JournalError> {
        let values = [agent.into(), RunStatus::Waiting.as_str().into()];
        let rows = self.0.read(WAITING, &values).await?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in &rows {
            runs.push(RunInfo::read(row, None)?);
        }
        Ok(runs)
    }

    /// Returns a run.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist, or what its end says cannot be read.
    pub async fn get(&self, run: impl Into<RunKey>) -> Result<RunInfo, JournalError> {
        let row = self.row(&run.into()).await?;
        RunInfo::read(&row, summary(&row)?)
    }

    async fn row(&self, key: &RunKey) -> Result<Row, JournalError> {
        let mut rows = self.0.read(ONE, &values(key)?).await?;
        rows.pop().ok_or_else(|| unknown(key))
    }

    /// Returns the steps of a run, in the order in which they began.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn steps(&self, run: impl Into<RunKey>) -> Result<Vec<StepInfo>, JournalError> {
        let key = run.into();
        self.row(&key).await?;
        self.0
            .read(STEPS, &values(&key)?)
            .await?
            .iter()
            .map(|row| StepInfo::read(&key.run, row))
            .collect()
    }

    /// Returns the request that continues a run; give it to the agent that began the run. For a run
    /// that has stopped, failed or completed it is the same request again, which executes only the
    /// steps that are not done. For a run that waits it is the one that resumes it: add its
    /// [resolutions](AgentRequest::with_resolutions). Interrupts that have
    /// [expired](tower_agent::Interrupt::with_expiry) have theirs.
    ///
    /// The request of a run in a session names the session, and is for the agent with its [session
    /// layer](tower_agent_conversations::SessionLayer) around it; another agent is refused. A run
    /// in a thread goes on there alone: with the next request of its client, or an
    /// [answer](tower_agent_conversations::Threads::answer).
    ///
    /// Tools, callbacks and the answer format that were given with the run are not part of it; add
    /// them again.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist, or was cancelled, with
    /// [`OtherConversation`](JournalError::OtherConversation) for a run in a thread, and with
    /// [`SessionDeleted`](JournalError::SessionDeleted) if it was begun in a session of this
    /// database that was deleted.
    pub async fn request(&self, run: impl Into<RunKey>) -> Result<AgentRequest, JournalError> {
        let key = run.into();
        loop {
            let row = self.latest(&key).await?;
            RunStatus::of_open_run(&key.run, row.text("status")?)?;
            let next = self.next_request(&row, &key).await;
            if let Some(next) = self.unless_changed(&row, &key, next).await? {
                return Ok(next);
            }
        }
    }

    /// Returns the messages with which the latest request of a run began: the conversation before
    /// it, and its own.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist, and with
    /// [`SessionDeleted`](JournalError::SessionDeleted) if a session of this database had them that
    /// was deleted.
    pub async fn messages(&self, run: impl Into<RunKey>) -> Result<Messages, JournalError> {
        let key = run.into();
        loop {
            let row = self.latest(&key).await?;
            let places = from_json(row.text("messages")?)?;
            let read = self.read_messages(&row, &key, &places).await;
            if let Some(messages) = self.unless_changed(&row, &key, read).await? {
                return Ok(messages);
            }
        }
    }

    /// Returns the latest request of a run.
    async fn latest(&self, key: &RunKey) -> Result<Row, JournalError> {
        let mut rows = self.0.read(REQUEST, &values(key)?).await?;
        rows.pop().ok_or_else(|| unknown(key))
    }

    /// Returns what was read for a row, or nothing if it was unreadable because a later request has
    /// come since.
    async fn unless_changed<T>(
        &self,
        row: &Row,
        key: &RunKey,
        read: Result<T, JournalError>,
    ) -> Result<Option<T>, JournalError> {
        let Err(JournalError::Store(StoreError::Data(why))) = read else {
            return read.map(Some);
        };
        let now = self.row(key).await?;
        if now.number::<u64>("epoch")? == row.number::<u64>("epoch")? {
            return Err(StoreError::Data(why).into());
        }
        Ok(None)
    }

    async fn next_request(&self, row: &Row, key: &RunKey) -> Result<AgentRequest, JournalError> {
        let saved: SavedRequest = from_json(row.text("request")?)?;
        let places: RunMessages = from_json(row.text("messages")?)?;
        let mut end = ended(row)?;
        if let Some(kept_in) = KeptIn::from_text(row.text("kept_in")?)? {
            if kept_in.policy != Some(Policy::Session) {
                // Only the thread knows what its client has of the run.
                return Err(other_conversation(key, Some(&kept_in)));
            }
            // A session that was deleted may have been begun anew, without this run.
            self.read_messages(row, key, &places).await?;
            return Ok(in_session(saved, end.as_ref(), key, &kept_in.key));
        }
        if let Some(RunEnd::Waiting { checkpoint, .. }) = &mut end {
            let shared = row.number("shared")?;
            // All of them are there if the session was deleted before the end was written.
            if shared > 0 {
                let request = self.read_messages(row, key, &places).await?;
                let mut all: Messages = request.range(0).take(shared).cloned().collect();
                all.extend(checkpoint.messages.iter().cloned());
                checkpoint.messages = all;
            }
            let next = next_request(saved, end, SystemTime::now());
            return Ok(key.request(next));
        }
        let saved = saved.with_messages(self.read_messages(row, key, &places).await?);
        let next = next_request(saved, end, SystemTime::now());
        Ok(key.request(next))
    }

    async fn read_messages(
        &self,
        row: &Row,
        key: &RunKey,
        places: &RunMessages,
    ) -> Result<Messages, JournalError> {
        let texts = places.read(&*self.0, row.number("id")?, &key.run).await?;
        run_messages::parse(&texts)
    }

    /// Cancels a run: its process stops before its next step, and the run cannot continue. A run
    /// that has completed stays completed.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn cancel(&self, run: impl Into<RunKey>) -> Result<(), JournalError> {
        let key = run.into();
        // The statement raises the epoch too, so that the run's process fails at its next write.
        let [owner, run] = values(&key)?;
        let values = [
            owner,
            run,
            RunStatus::Cancelled.as_str().into(),
            now().into(),
            RunStatus::Completed.as_str().into(),
        ];
        if self.write(CANCEL, &values).await? == 0 {
            // The run has completed, which is no error, or there is none.
            self.row(&key).await?;
        }
        Ok(())
    }

    /// Deletes a run with its steps. Its process, if there is one, stops before its next step.
    ///
    /// # Errors
    ///
    /// Fails if the run does not exist.
    pub async fn delete(&self, run: impl Into<RunKey>) -> Result<(), JournalError> {
        let key = run.into();
        if self.delete_all(DELETE, &values(&key)?).await? == 0 {
            return Err(unknown(&key));
        }
        Ok(())
    }

    /// Deletes the runs that have completed, failed or were cancelled before this time, with their
    /// steps; returns their number. Call it periodically.
    ///
    /// A run that is running or waits is not deleted: see
    /// [`delete_untouched`](Self::delete_untouched). A deleted run is forgotten: started again
    /// under the same id, it makes all of its calls. So keep runs for longer than anyone may start
    /// them again.
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
        let values = [
            millis(before).into(),
            RunStatus::Completed.as_str().into(),
            RunStatus::Failed.as_str().into(),
            RunStatus::Cancelled.as_str().into(),
        ];
        self.delete_all(DELETE_ENDED, &values).await
    }

    /// Deletes the runs that nothing has happened to since this time, whatever their status, with
    /// their steps; returns their number. Those that wait for an answer which never comes, and
    /// those whose process has died, are among them.
    ///
    /// A run that works has a [heartbeat](RunInfo::HEARTBEAT), so that it is not deleted if the
    /// time is a minute ago or more.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn delete_untouched(&self, since: SystemTime) -> Result<u64, JournalError> {
        let values = [millis(since).into()];
        self.delete_all(DELETE_UNTOUCHED, &values).await
    }

    /// Deletes everything that the database has of a user, as its `delete_user` does: durable runs,
    /// and the sessions and threads in it. Returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the database does, and if the user is an empty text. Nothing is deleted then.
    pub async fn delete_user(&self, user: &str) -> Result<u64, JournalError> {
        let database = self.0.clone();
        let user = user.to_owned();
        Ok(to_end(async move { user_data::delete(&*database, &user).await }).await?)
    }

    /// Takes a lost run, so that it looks alive to others. Returns whether nobody else has.
    pub(super) async fn claim(&self, run: &RunInfo) -> Result<bool, JournalError> {
        let key = RunKey::from(run);
        let [owner, id] = values(&key)?;
        let running = RunStatus::Running.as_str();
        let values = [
            owner,
            id,
            running.into(),
            now().into(),
            run.epoch.into(),
            millis(run.updated_at).into(),
        ];
        Ok(self.write(CLAIM, &values).await? == 1)
    }

    async fn delete_all(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<u64, JournalError> {
        let deleted = self.write(sql, values).await?;
        if deleted > 0 {
            self.0.wipe().await;
        }
        Ok(deleted)
    }

    async fn write(&self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, JournalError> {
        let mut tx = self.0.begin(Wait::Limited, Durability::AtCommit).await?;
        let written = tx.execute(sql, values).await?;
        tx.commit().await?;
        Ok(written)
    }
}

/// Returns the request that continues a run in its session, which has the conversation, the state
/// and the outcomes of what has expired.
fn in_session(
    saved: SavedRequest,
    end: Option<&RunEnd>,
    key: &RunKey,
    session: &ConversationKey,
) -> AgentRequest {
    // Those of a run that waits have counted.
    let resolutions = match end {
        Some(RunEnd::Waiting { .. }) => Vec::new(),
        _ => saved.resolutions().to_vec(),
    };
    let settings = AgentRequest::from(saved).settings().clone();
    let request = AgentRequest::default()
        .with_settings(settings)
        .with_resolutions(resolutions);
    session.request(key.request(request))
}

/// Returns the arguments that name a run.
fn values(key: &RunKey) -> Result<[Value<'_>; 2], StoreError> {
    key.check()?;
    Ok([key.owner().into(), (&*key.run).into()])
}

/// Returns the summary of the run's end, if it has one.
fn summary(row: &Row) -> Result<Option<RunSummary>, StoreError> {
    let text = row.optional_text("summary")?;
    text.map(RunSummary::from_json).transpose()
}

impl RunInfo {
    /// Reads a run, also one whose end cannot be read: a run of a later version must not hide the
    /// others from the operator.
    fn read_or_mark(row: &Row) -> Result<Self, JournalError> {
        match summary(row) {
            Ok(end) => Self::read(row, end),
            Err(StoreError::NewerFormat { .. } | StoreError::Data(_)) => Ok(Self {
                status: RunStatus::Unreadable,
                ..Self::read(row, None)?
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn read(row: &Row, end: Option<RunSummary>) -> Result<Self, JournalError> {
        let status = RunStatus::from_name(row.text("status")?);
        let started_at = time(row.number("started_at")?);
        let mut info = Self::new(
            row.text("run")?,
            row.text("agent")?,
            status,
            None,
            started_at,
        );
        if let Some(end) = end {
            info.interrupts = end.interrupts;
            info.error = end.error;
        }
        let owner = row.text("owner")?;
        info.user = (!owner.is_empty()).then(|| owner.into());
        if let Some(KeptIn { policy, key }) = KeptIn::from_text(row.text("kept_in")?)? {
            info.conversation = Some(key);
            info.policy = policy;
        }
        let version = row.text("version")?;
        info.version = (!version.is_empty()).then(|| version.into());
        info.epoch = row.number("epoch")?;
        info.updated_at = time(row.number("updated_at")?);
        Ok(info)
    }
}

impl StepInfo {
    fn read(run: &str, row: &Row) -> Result<Self, JournalError> {
        let intent: Intent = from_json(row.text("intent")?)?;
        Ok(Self {
            id: StepId::of_stored(run, row.text("id")?)?,
            is_repeatable: intent.is_repeatable,
            attempt: row.number("attempt")?,
            begun_at: time(row.number("begun_at")?),
            ended_at: row.optional_number("ended_at")?.map(time),
        })
    }
}
