use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::{
    Begun, Input, Intent, Journal, JournalError, Lease, OpenRun, Record, RunEnd, RunStatus, StepId,
};
use crate::database::{OrFailure, SqliteWrite};
use crate::time::now;
use crate::{Sqlite, StoreError};

pub(super) fn to_json(value: &impl Serialize) -> Result<String, JournalError> {
    Ok(serde_json::to_string(value).map_err(StoreError::data)?)
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, JournalError> {
    Ok(serde_json::from_str(text).map_err(StoreError::data)?)
}

/// Reads a record, unless it is of a later version.
pub(super) fn read_record(text: &str) -> Result<Record, JournalError> {
    #[derive(serde::Deserialize)]
    struct Head {
        version: u32,
    }
    let Head { version: found } = from_json(text)?;
    if found > Record::VERSION {
        return Err(StoreError::NewerFormat { found, newest: Record::VERSION }.into());
    }
    from_json(text)
}

/// Fails unless this process works on the run.
async fn check(tx: &mut SqliteWrite, run: &OpenRun) -> Result<(), JournalError> {
    let row = sqlx::query("SELECT epoch, status FROM tower_agent_runs WHERE run = ?")
        .bind(&*run.id)
        .fetch_optional(tx.connection())
        .await
        .or_failure()?;
    let Some(row) = row else { return Err(JournalError::UnknownRun { run: run.id.clone() }) };
    let status: String = row.try_get("status").or_failure()?;
    if status == RunStatus::Cancelled.as_str() {
        return Err(JournalError::Cancelled { run: run.id.clone() });
    }
    match row.try_get::<i64, _>("epoch").or_failure()? == number(run.epoch) {
        true => Ok(()),
        false => Err(JournalError::TakenOver { run: run.id.clone() }),
    }
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn small(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

impl Journal for Sqlite {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        let id = input.request.run_id();
        let fingerprint = to_json(&input.fingerprint)?;
        let mut tx = self.begin().await?;
        let row = sqlx::query(
            "SELECT r.epoch, r.input, r.conversation, r.status, i.fingerprint FROM tower_agent_runs r \
             JOIN tower_agent_run_inputs i ON i.run = r.run AND i.number = r.input WHERE r.run = ?",
        )
        .bind(id)
        .fetch_optional(tx.connection())
        .await.or_failure()?;
        let (epoch, number, conversation, is_new) = match &row {
            None => (1, 1, 1, true),
            Some(row) => {
                let status: String = row.try_get("status").or_failure()?;
                if status == RunStatus::Cancelled.as_str() {
                    return Err(JournalError::Cancelled { run: id.into() });
                }
                let is_new = row.try_get::<String, _>("fingerprint").or_failure()? != fingerprint;
                if is_new && status == RunStatus::Running.as_str() {
                    return Err(JournalError::OtherRequest { run: id.into() });
                }
                let number = row.try_get::<i64, _>("input").or_failure()? + i64::from(is_new);
                let is_over = status == RunStatus::Completed.as_str();
                let continues = input.request.checkpoint().turn > 0 && !is_over;
                let conversation = match is_new && !continues {
                    true => number,
                    false => row.try_get::<i64, _>("conversation").or_failure()?,
                };
                (row.try_get::<i64, _>("epoch").or_failure()? + 1, number, conversation, is_new)
            }
        };
        let (now, running) = (now(), RunStatus::Running.as_str());
        let written = match row {
            None => sqlx::query(
                "INSERT INTO tower_agent_runs (epoch, input, status, started_at, updated_at, agent, \
                 run, conversation) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7)",
            ),
            Some(_) => sqlx::query(
                "UPDATE tower_agent_runs SET epoch = ?1, input = ?2, status = ?3, updated_at = ?4, \
                 agent = ?5, ended = NULL, conversation = ?7 WHERE run = ?6",
            ),
        };
        let written = written.bind(epoch).bind(number).bind(running).bind(now);
        written
            .bind(&*input.agent)
            .bind(id)
            .bind(conversation)
            .execute(tx.connection())
            .await
            .or_failure()?;
        if is_new {
            sqlx::query(
                "INSERT INTO tower_agent_run_inputs (run, number, fingerprint, request) \
                 VALUES (?, ?, ?, ?)",
            )
            .bind(id)
            .bind(number)
            .bind(fingerprint)
            .bind(to_json(&input.request)?)
            .execute(tx.connection())
            .await
            .or_failure()?;
        }
        tx.commit().await?;
        Ok(OpenRun::new(id, unsigned(epoch), small(number), small(conversation)))
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<Begun, JournalError> {
        let key = step.key();
        let mut tx = self.begin().await?;
        check(&mut tx, run).await?;
        let row = sqlx::query(
            "SELECT intent, attempt, record FROM tower_agent_run_steps WHERE run = ? AND step = ?",
        )
        .bind(&*run.id)
        .bind(&key)
        .fetch_optional(tx.connection())
        .await
        .or_failure()?;
        if let Some(row) = row {
            let then = from_json(row.try_get("intent").or_failure()?)?;
            return match row.try_get::<Option<&str>, _>("record").or_failure()? {
                Some(record) => Ok(Begun::Done(then, read_record(record)?)),
                None => {
                    let attempt = small(row.try_get("attempt").or_failure()?);
                    let lease = Lease::new(run.clone(), step.clone(), attempt);
                    Ok(Begun::Unfinished(lease, then))
                }
            };
        }
        sqlx::query(
            "INSERT INTO tower_agent_run_steps (run, step, id, intent, attempt, begun_at) \
             VALUES (?, ?, ?, ?, 1, ?)",
        )
        .bind(&*run.id)
        .bind(&key)
        .bind(to_json(step)?)
        .bind(to_json(intent)?)
        .bind(now())
        .execute(tx.connection())
        .await
        .or_failure()?;
        tx.commit().await?;
        Ok(Begun::Fresh(Lease::new(run.clone(), step.clone(), 1)))
    }

    async fn begin_again(&self, lease: Lease) -> Result<Lease, JournalError> {
        let again = sqlx::query(
            "UPDATE tower_agent_run_steps SET attempt = attempt + 1, begun_at = ? \
             WHERE run = ? AND step = ? AND attempt = ? AND record IS NULL",
        );
        write(self, &lease, again.bind(now())).await?;
        Ok(Lease { attempt: lease.attempt.saturating_add(1), ..lease })
    }

    async fn commit(&self, lease: &Lease, record: &Record) -> Result<(), JournalError> {
        let ended = sqlx::query(
            "UPDATE tower_agent_run_steps SET record = ?, ended_at = ? \
             WHERE run = ? AND step = ? AND attempt = ? AND record IS NULL",
        );
        write(self, lease, ended.bind(to_json(record)?).bind(now())).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        let never = sqlx::query(
            "DELETE FROM tower_agent_run_steps \
             WHERE run = ? AND step = ? AND attempt = ? AND record IS NULL",
        );
        write(self, lease, never).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        let mut tx = self.begin().await?;
        check(&mut tx, run).await?;
        sqlx::query(
            "UPDATE tower_agent_runs SET status = ?, ended = ?, updated_at = ? WHERE run = ?",
        )
        .bind(RunStatus::of(end).as_str())
        .bind(to_json(end)?)
        .bind(now())
        .bind(&*run.id)
        .execute(tx.connection())
        .await
        .or_failure()?;
        Ok(tx.commit().await?)
    }
}

/// Writes to the step of a lease, whose run, step and attempt are the last arguments of the query.
async fn write(
    database: &Sqlite,
    lease: &Lease,
    query: Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<(), JournalError> {
    let mut tx = database.begin().await?;
    check(&mut tx, &lease.run).await?;
    let query = query.bind(&*lease.run.id).bind(lease.step.key()).bind(lease.attempt);
    let written = query.execute(tx.connection()).await.or_failure()?;
    if written.rows_affected() != 1 {
        // Another attempt has written to it.
        return Err(JournalError::TakenOver { run: lease.run.id.clone() });
    }
    Ok(tx.commit().await?)
}
