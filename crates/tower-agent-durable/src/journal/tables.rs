//! The journal in the tables of a database.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_agent::agent::SavedRequest;

use super::error::JournalError;
use super::input::Input;
use super::intent::Intent;
use super::journal::{Begun, Lease};
use super::known_run::KnownRun;
use super::open_run::OpenRun;
use super::record::Record;
use super::run_end::RunEnd;
use super::run_status::RunStatus;
use super::step_id::StepId;
use crate::database::{Row, Sql, Transaction, Value};
use crate::error::StoreError;
use crate::json;
use crate::time::now;

// The first statement of each transaction writes to the run, so that processes take turns with it.

const KNOW: &str = "\
    INSERT INTO tower_agent_runs \
    (run, agent, owner, epoch, input, conversation, status, started_at, updated_at) \
    VALUES ($1, $2, NULLIF($5, ''), 0, 0, 0, $3, $4, $4) \
    ON CONFLICT (run) DO UPDATE SET updated_at = excluded.updated_at, \
    owner = COALESCE(excluded.owner, tower_agent_runs.owner) \
    RETURNING epoch, input, conversation, status, ended";

const REQUESTS: &str = "\
    SELECT fingerprint, request FROM tower_agent_run_inputs WHERE run = $1 AND number >= $2 ORDER BY number";

const START: &str = "\
    UPDATE tower_agent_runs \
    SET agent = $2, epoch = $3, input = $4, conversation = $5, status = $6, ended = NULL \
    WHERE run = $1";

const ADD_INPUT: &str = "\
    INSERT INTO tower_agent_run_inputs (run, number, fingerprint, request) \
    VALUES ($1, $2, $3, $4)";

const CHECK: &str =
    "UPDATE tower_agent_runs SET updated_at = $2 WHERE run = $1 RETURNING epoch, status";

const STEP: &str =
    "SELECT intent, attempt, record FROM tower_agent_run_steps WHERE run = $1 AND step = $2";

const ADD_STEP: &str = "\
    INSERT INTO tower_agent_run_steps (run, step, id, intent, attempt, begun_at) \
    VALUES ($1, $2, $3, $4, 1, $5)";

const BEGIN_AGAIN: &str = "\
    UPDATE tower_agent_run_steps SET attempt = attempt + 1, begun_at = $4 \
    WHERE run = $1 AND step = $2 AND attempt = $3 AND record IS NULL";

const COMMIT: &str = "\
    UPDATE tower_agent_run_steps SET record = $4, ended_at = $5 \
    WHERE run = $1 AND step = $2 AND attempt = $3 AND record IS NULL";

const RELEASE: &str = "\
    DELETE FROM tower_agent_run_steps \
    WHERE run = $1 AND step = $2 AND attempt = $3 AND record IS NULL";

const END: &str = "UPDATE tower_agent_runs SET status = $2, ended = $3 WHERE run = $1";

pub(super) async fn start(database: &dyn Sql, input: &Input) -> Result<OpenRun, JournalError> {
    let id = input.request.run_id();
    let running = RunStatus::Running.as_str();
    let mut tx = database.begin().await?;
    // Creates the row of a new run, and locks the row of a known one until the commit.
    let known = [
        id.into(),
        (&*input.agent).into(),
        running.into(),
        now().into(),
        input.user.as_deref().unwrap_or_default().into(),
    ];
    let Some(row) = tx.fetch_all(KNOW, &known).await?.pop() else {
        return Err(unknown(id));
    };
    // Requests are numbered from 1, so 0 is a row that this transaction has created.
    let latest: u32 = row.number("input")?;
    let run = if latest == 0 {
        OpenRun::new(id, 1, 1, 1)
    } else {
        known_run(&mut *tx, id, &row).await?.start(input)?
    };
    let start = [
        id.into(),
        (&*input.agent).into(),
        run.epoch.into(),
        run.input.into(),
        run.conversation.into(),
        running.into(),
    ];
    tx.execute(START, &start).await?;
    if run.input != latest {
        let fingerprint = to_json(&input.fingerprint)?;
        let request = to_json(&input.request)?;
        let add = [
            id.into(),
            run.input.into(),
            (&fingerprint).into(),
            (&request).into(),
        ];
        tx.execute(ADD_INPUT, &add).await?;
    }
    tx.commit().await?;
    Ok(run)
}

async fn known_run(
    tx: &mut dyn Transaction,
    id: &str,
    row: &Row,
) -> Result<KnownRun, JournalError> {
    let status = RunStatus::of_open_run(id, row.text("status")?)?;
    let conversation: u32 = row.number("conversation")?;
    let run = OpenRun::new(id, row.number("epoch")?, row.number("input")?, conversation);
    let mut known = KnownRun::new(run, status);
    let rows = tx
        .fetch_all(REQUESTS, &[id.into(), conversation.into()])
        .await?;
    for row in &rows {
        known
            .fingerprints
            .push(from_json(row.text("fingerprint")?)?);
        let request: SavedRequest = from_json(row.text("request")?)?;
        known.answers.extend_from_slice(request.resolutions());
        known.turn = request.checkpoint().head.turn;
    }
    if let Some(end) = ended(row)? {
        known.interrupts = end.interrupts().to_vec();
    }
    Ok(known)
}

pub(super) async fn begin(
    database: &dyn Sql,
    run: &OpenRun,
    step: &StepId,
    intent: &Intent,
) -> Result<Begun, JournalError> {
    let key = step.key();
    let mut tx = database.begin().await?;
    check(&mut *tx, run).await?;
    let step_key = [(&*run.id).into(), (&key).into()];
    if let Some(row) = tx.fetch_all(STEP, &step_key).await?.pop() {
        // Nothing was written but the time of the check, so the transaction is dropped.
        let then = from_json(row.text("intent")?)?;
        return match row.optional_text("record")? {
            Some(record) => Ok(Begun::Done(then, Record::from_json(record)?)),
            None => {
                let lease = Lease::new(run.clone(), step.clone(), row.number("attempt")?);
                Ok(Begun::Unfinished(lease, then))
            }
        };
    }
    let name = to_json(step)?;
    let intent = to_json(intent)?;
    let add = [
        (&*run.id).into(),
        (&key).into(),
        (&name).into(),
        (&intent).into(),
        now().into(),
    ];
    tx.execute(ADD_STEP, &add).await?;
    tx.commit().await?;
    Ok(Begun::Fresh(Lease::new(run.clone(), step.clone(), 1)))
}

pub(super) async fn begin_again(database: &dyn Sql, lease: Lease) -> Result<Lease, JournalError> {
    write(database, &lease, BEGIN_AGAIN, &[now().into()]).await?;
    Ok(Lease {
        attempt: lease.attempt.saturating_add(1),
        ..lease
    })
}

pub(super) async fn commit(
    database: &dyn Sql,
    lease: &Lease,
    record: &Record,
) -> Result<(), JournalError> {
    let record = to_json(record)?;
    write(database, lease, COMMIT, &[(&record).into(), now().into()]).await
}

pub(super) async fn release(database: &dyn Sql, lease: &Lease) -> Result<(), JournalError> {
    write(database, lease, RELEASE, &[]).await
}

pub(super) async fn end(
    database: &dyn Sql,
    run: &OpenRun,
    end: &RunEnd,
) -> Result<(), JournalError> {
    let status = end.status().as_str();
    let ended = to_json(end)?;
    let mut tx = database.begin().await?;
    check(&mut *tx, run).await?;
    tx.execute(END, &[(&*run.id).into(), status.into(), (&ended).into()])
        .await?;
    Ok(tx.commit().await?)
}

/// Writes to the step of a lease: its run, its name and the attempt are the first arguments.
async fn write(
    database: &dyn Sql,
    lease: &Lease,
    sql: &'static str,
    more: &[Value<'_>],
) -> Result<(), JournalError> {
    let key = lease.step.key();
    let mut values = vec![(&*lease.run.id).into(), (&key).into(), lease.attempt.into()];
    values.extend_from_slice(more);
    let mut tx = database.begin().await?;
    check(&mut *tx, &lease.run).await?;
    if tx.execute(sql, &values).await? != 1 {
        // Another attempt has begun or ended the step since. The epoch is this process's, so it is a
        // second call in this process, or a lease that was used twice.
        return Err(JournalError::TakenOver {
            run: lease.run.id.clone(),
        });
    }
    Ok(tx.commit().await?)
}

/// Fails unless this process has the run. The update locks its row, so that no other process takes the run
/// over before the transaction ends.
async fn check(tx: &mut dyn Transaction, run: &OpenRun) -> Result<(), JournalError> {
    let mut rows = tx
        .fetch_all(CHECK, &[(&*run.id).into(), now().into()])
        .await?;
    let Some(row) = rows.pop() else {
        return Err(unknown(&run.id));
    };
    RunStatus::of_open_run(&run.id, row.text("status")?)?;
    if row.number::<u64>("epoch")? != run.epoch {
        return Err(JournalError::TakenOver {
            run: run.id.clone(),
        });
    }
    Ok(())
}

pub(super) fn unknown(run: &str) -> JournalError {
    JournalError::UnknownRun { run: run.into() }
}

/// Returns the end of a run, if it has one.
pub(super) fn ended(row: &Row) -> Result<Option<RunEnd>, JournalError> {
    Ok(row
        .optional_text("ended")?
        .map(RunEnd::from_json)
        .transpose()?)
}

fn to_json(value: &impl Serialize) -> Result<String, JournalError> {
    Ok(json::write(value)?)
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, JournalError> {
    Ok(serde_json::from_str(text).map_err(StoreError::data)?)
}
