//! The journal in the tables of a database.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_agent::Checkpoint;
use tower_agent::agent::SavedRequest;
use tower_agent::message::Messages;

use super::error::JournalError;
use super::fingerprint;
use super::input::Input;
use super::intent::Intent;
use super::journal::{StepLease, StepState};
use super::kept_in::KeptIn;
use super::known_run::KnownRun;
use super::open_run::{Before, OpenRun, Waited};
use super::record::StepRecord;
use super::run_end::RunEnd;
use super::run_key::{MAX_ID, RunKey};
use super::run_messages::{self, RunMessages};
use super::run_status::RunStatus;
use super::run_summary::RunSummary;
use super::step_id::StepId;
use crate::database::{Durability, Row, Sql, Transaction, Value, Wait};
use crate::time::now;
use tower_agent_conversations::{StoreError, to_json};

// The first statement of each transaction writes to the run, so that processes take turns with it.

const KNOW: &str = "\
    INSERT INTO tower_agent_runs \
    (owner, run, agent, version, kept_in, epoch, input, conversation, status, started_at, \
    updated_at) VALUES ($1, $2, $3, $7, $6, 0, 0, 0, $4, $5, $5) \
    ON CONFLICT (owner, run) DO UPDATE SET updated_at = excluded.updated_at \
    RETURNING id, agent, version, kept_in, epoch, input, conversation, status, ended, shared, summary";

const SUPERSEDE: &str = "\
    UPDATE tower_agent_runs SET status = $4, ended = NULL, summary = NULL, shared = NULL \
    WHERE owner = $1 AND status = $5 AND kept_in = $2 AND id <> $3";

const REQUESTS: &str = "\
    SELECT fingerprint, request FROM tower_agent_run_inputs WHERE run = $1 AND number >= $2 ORDER BY number";

const START: &str = "\
    UPDATE tower_agent_runs \
    SET agent = $2, epoch = $3, input = $4, conversation = $5, status = $6, version = $7, \
    ended = NULL, shared = NULL, summary = NULL WHERE id = $1";

const ADD_INPUT: &str = "\
    INSERT INTO tower_agent_run_inputs (run, number, fingerprint, request, messages) \
    VALUES ($1, $2, $3, $4, $5)";

const CHECK: &str = "\
    UPDATE tower_agent_runs SET updated_at = $2 WHERE id = $1 RETURNING id, epoch, status";

const EARLIER_STEPS: &str = "\
    SELECT s.id, s.intent, s.ended_at FROM tower_agent_run_steps s \
    JOIN tower_agent_runs r ON r.id = s.run AND r.input = s.input \
    WHERE r.owner = $1 AND r.run = $2 ORDER BY s.position";

const BEAT: &str = "\
    UPDATE tower_agent_runs SET updated_at = $2 WHERE id = $1 AND epoch = $3 AND status = $4";

const STEP: &str = "SELECT intent, attempt, record, digest FROM tower_agent_run_steps WHERE run = $1 AND step = $2";

const ADD_STEP: &str = "\
    INSERT INTO tower_agent_run_steps (run, step, id, intent, input, attempt, begun_at) \
    VALUES ($1, $2, $3, $4, $5, 1, $6) ON CONFLICT (run, step) DO NOTHING";

const BEGIN_AGAIN: &str = "\
    UPDATE tower_agent_run_steps SET attempt = attempt + 1, begun_at = $4, input = $5 \
    WHERE run = $1 AND step = $2 AND attempt = $3 AND record IS NULL";

const COMMIT: &str = "\
    UPDATE tower_agent_run_steps SET record = $4, ended_at = $5, input = $6, digest = $7 \
    WHERE run = $1 AND step = $2 AND attempt = $3 AND record IS NULL";

const RELEASE: &str = "\
    DELETE FROM tower_agent_run_steps \
    WHERE run = $1 AND step = $2 AND attempt = $3 AND record IS NULL";

const END: &str = "\
    UPDATE tower_agent_runs SET status = $2, ended = $3, summary = $4, shared = $5 WHERE id = $1";

const GIVE_BACK: &str = "\
    UPDATE tower_agent_runs SET agent = $2, input = $3, status = $4, ended = $5, shared = $6, \
    summary = $7, version = $8 WHERE id = $1";

const GIVE_BACK_LOST: &str = "UPDATE tower_agent_runs SET agent = $2, version = $3 WHERE id = $1";

const DROP_INPUT: &str = "DELETE FROM tower_agent_run_inputs WHERE run = $1 AND number = $2";

const MOVE_MESSAGES: &str = "\
    UPDATE tower_agent_run_inputs SET messages = $3 WHERE run = $1 AND number = $2";

const COMPLETE: &str = "\
    UPDATE tower_agent_runs SET status = $2, ended = NULL, summary = NULL, shared = NULL WHERE id = $1";

const LATEST: &str = "SELECT messages FROM tower_agent_run_inputs WHERE run = $1 AND number = $2";

pub(super) async fn start(database: &dyn Sql, input: &Input) -> Result<OpenRun, JournalError> {
    let key = input.key();
    key.check()?;
    let kept_in = KeptIn::to_text(input.conversation.as_ref())?;
    let version = input.version.as_deref().unwrap_or_default();
    let running = RunStatus::Running.as_str();
    let conversation = &input.request.checkpoint().messages;
    let stored = input.conversation.as_ref().map(|stored| &stored.key);
    let (messages, own) = RunMessages::find(database, conversation, &input.known, stored).await?;
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    // Creates the row of a new run, and locks the row of a known one until the commit.
    let known = [
        key.owner().into(),
        (&*key.run).into(),
        (&*input.agent).into(),
        running.into(),
        now().into(),
        (&kept_in).into(),
        version.into(),
    ];
    let Some(row) = tx.fetch_all(KNOW, &known).await?.pop() else {
        return Err(unknown(&key));
    };
    let id: i64 = row.number("id")?;
    // Requests are numbered from 1, so 0 is a row that this transaction has created.
    let latest: u32 = row.number("input")?;
    let mut run = if latest == 0 {
        if !kept_in.is_empty() {
            // The questions of an earlier run are closed, or this one has the answers.
            let values = [
                key.owner().into(),
                (&kept_in).into(),
                id.into(),
                RunStatus::Completed.as_str().into(),
                RunStatus::Waiting.as_str().into(),
            ];
            tx.execute(SUPERSEDE, &values).await?;
        }
        OpenRun::new(key, 1, 1, 1)
    } else {
        check_conversation(&key, &row, &kept_in)?;
        let mut run = known_run(&mut *tx, key, &row).await?.start(input)?;
        run.before = before(&row, latest)?.map(Arc::new);
        run
    };
    run.row = id;
    let start = [
        id.into(),
        (&*input.agent).into(),
        run.epoch.into(),
        run.input.into(),
        run.conversation.into(),
        running.into(),
        version.into(),
    ];
    tx.execute(START, &start).await?;
    if run.input != latest {
        let fingerprint = text_of(&input.fingerprint)?;
        let request = text_of(&input.request.clone().with_messages(Messages::new()))?;
        let places = text_of(&messages)?;
        let add = [
            id.into(),
            run.input.into(),
            (&fingerprint).into(),
            (&request).into(),
            (&places).into(),
        ];
        tx.execute(ADD_INPUT, &add).await?;
        messages
            .write(&mut *tx, database.dialect(), id, &own)
            .await?;
    }
    tx.commit().await?;
    Ok(run)
}

/// Fails for a request that does not come from the conversation which its run is part of.
fn check_conversation(key: &RunKey, row: &Row, kept_in: &str) -> Result<(), JournalError> {
    let known = row.text("kept_in")?;
    if known == kept_in {
        return Ok(());
    }
    Err(other_conversation(key, KeptIn::from_text(known)?.as_ref()))
}

/// Returns the error for a request that goes on with a run, and does not come from its
/// conversation.
pub(super) fn other_conversation(key: &RunKey, known: Option<&KeptIn>) -> JournalError {
    let conversation = match known {
        Some(KeptIn {
            policy: Some(policy),
            key,
        }) => format!("{policy} `{key}`"),
        _ => "no stored conversation".to_owned(),
    };
    JournalError::OtherConversation {
        run: key.run.clone(),
        conversation: conversation.into(),
    }
}

/// Returns a run that waits, or whose process was lost, as it is.
fn before(row: &Row, input: u32) -> Result<Option<Before>, JournalError> {
    let waited = match RunStatus::from_name(row.text("status")?) {
        RunStatus::Running => None,
        RunStatus::Waiting => Some(Waited {
            input,
            ended: row.text("ended")?.to_owned(),
            shared: row.number("shared")?,
            summary: row.text("summary")?.to_owned(),
        }),
        _ => return Ok(None),
    };
    Ok(Some(Before {
        agent: row.text("agent")?.to_owned(),
        version: row.text("version")?.to_owned(),
        waited,
    }))
}

pub(super) async fn give_back(database: &dyn Sql, run: &OpenRun) -> Result<bool, JournalError> {
    let Some(before) = &run.before else {
        return Ok(false);
    };
    let mut tx = database
        .begin(Wait::Unlimited, Durability::AtCommit)
        .await?;
    let id = check(&mut *tx, run).await?;
    let agent = (&*before.agent).into();
    let version = (&*before.version).into();
    let Some(waited) = &before.waited else {
        // Nobody works on it, as before.
        tx.execute(GIVE_BACK_LOST, &[id.into(), agent, version])
            .await?;
        tx.commit().await?;
        return Ok(true);
    };
    if run.input != waited.input {
        // The messages of both requests are stored once, where the later one has them.
        let later = messages_of(&mut *tx, run, id, run.input).await?;
        let earlier = messages_of(&mut *tx, run, id, waited.input).await?;
        let texts = match later.read_in(&mut *tx, id, &run.id).await {
            Err(JournalError::SessionDeleted { .. }) => return Ok(false),
            read => read?,
        };
        let places = later.first(earlier.len(), &texts);
        places.cut(&mut *tx, id).await?;
        let places = to_json(&places)?;
        let values = [id.into(), waited.input.into(), (&places).into()];
        tx.execute(MOVE_MESSAGES, &values).await?;
        tx.execute(DROP_INPUT, &[id.into(), run.input.into()])
            .await?;
    }
    let values = [
        id.into(),
        agent,
        waited.input.into(),
        RunStatus::Waiting.as_str().into(),
        (&*waited.ended).into(),
        waited.shared.into(),
        (&*waited.summary).into(),
        version,
    ];
    tx.execute(GIVE_BACK, &values).await?;
    tx.commit().await?;
    Ok(true)
}

/// Returns where the messages of a request are.
async fn messages_of(
    tx: &mut dyn Transaction,
    run: &OpenRun,
    id: i64,
    input: u32,
) -> Result<RunMessages, JournalError> {
    let mut rows = tx.fetch_all(LATEST, &[id.into(), input.into()]).await?;
    let row = rows.pop().ok_or_else(|| unknown(&run.key()))?;
    from_json(row.text("messages")?)
}

async fn known_run(
    tx: &mut dyn Transaction,
    key: RunKey,
    row: &Row,
) -> Result<KnownRun, JournalError> {
    let id: i64 = row.number("id")?;
    let status = RunStatus::of_open_run(&key.run, row.text("status")?)?;
    let conversation: u32 = row.number("conversation")?;
    let run = OpenRun::new(
        key,
        row.number("epoch")?,
        row.number("input")?,
        conversation,
    );
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

pub(super) async fn earlier_steps(
    database: &dyn Sql,
    run: &OpenRun,
) -> Result<Vec<StepId>, JournalError> {
    let key = run.key();
    let rows = database
        .read(EARLIER_STEPS, &[key.owner().into(), (&*key.run).into()])
        .await?;
    let mut steps = Vec::new();
    for row in &rows {
        let has_ended = row.optional_number::<i64>("ended_at")?.is_some();
        let intent: Intent = from_json(row.text("intent")?)?;
        // One that may be repeated is lost with its process.
        if has_ended || !intent.is_repeatable {
            steps.push(StepId::of_stored(&key.run, row.text("id")?)?);
        }
    }
    Ok(steps)
}

pub(super) async fn beat(database: &dyn Sql, run: &OpenRun) -> Result<(), JournalError> {
    let values = [
        run.row.into(),
        now().into(),
        run.epoch.into(),
        RunStatus::Running.as_str().into(),
    ];
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    if tx.execute(BEAT, &values).await? == 0 {
        return Err(taken_over(run));
    }
    Ok(tx.commit().await?)
}

pub(super) async fn begin(
    database: &dyn Sql,
    run: &OpenRun,
    step: &StepId,
    intent: &Intent,
) -> Result<StepState, JournalError> {
    let key = stored_key(step);
    let durability = if intent.is_repeatable {
        // Without its beginning the call is made again, as it would be with it.
        Durability::Later
    } else {
        Durability::AtCommit
    };
    let mut tx = database.begin(Wait::Unlimited, durability).await?;
    let id = check(&mut *tx, run).await?;
    let step_key = [id.into(), (&key).into()];
    if let Some(row) = tx.fetch_all(STEP, &step_key).await?.pop() {
        // Nothing was written but the time of the check, so the transaction is dropped.
        let then = from_json(row.text("intent")?)?;
        return match row.optional_text("record")? {
            Some(text) => {
                let record = StepRecord::from_json(text)?;
                if digest(text, step) != row.text("digest")? {
                    let why = format!("the record of {step} was changed in the database");
                    return Err(StoreError::data(why).into());
                }
                Ok(StepState::Done(then, record))
            }
            None => {
                let lease = StepLease::new(run.clone(), step.clone(), row.number("attempt")?);
                Ok(StepState::Unfinished(lease, then))
            }
        };
    }
    let mut lease = StepLease::new(run.clone(), step.clone(), 1);
    let text = text_of(intent)?;
    if !add_step(&mut *tx, id, &lease, &text).await? {
        return Err(taken_over(run));
    }
    tx.commit().await?;
    if intent.is_repeatable {
        lease.unsynced = Some(text.into());
    }
    Ok(StepState::Fresh(lease))
}

/// Adds a step with its intent, and returns whether it was missing.
async fn add_step(
    tx: &mut dyn Transaction,
    id: i64,
    lease: &StepLease,
    intent: &str,
) -> Result<bool, JournalError> {
    let key = stored_key(&lease.step);
    let name = lease.step.stored()?;
    let add = [
        id.into(),
        (&key).into(),
        (&name).into(),
        intent.into(),
        lease.run.input.into(),
        now().into(),
    ];
    Ok(tx.execute(ADD_STEP, &add).await? == 1)
}

pub(super) async fn begin_again(
    database: &dyn Sql,
    lease: StepLease,
) -> Result<StepLease, JournalError> {
    let more = [now().into(), lease.run.input.into()];
    write(database, &lease, BEGIN_AGAIN, &more).await?;
    Ok(StepLease::new(
        lease.run,
        lease.step,
        lease.attempt.saturating_add(1),
    ))
}

pub(super) async fn commit(
    database: &dyn Sql,
    lease: &StepLease,
    record: &StepRecord,
) -> Result<(), JournalError> {
    let record = text_of(record)?;
    let digest = digest(&record, &lease.step);
    let input = lease.run.input.into();
    let more = [(&record).into(), now().into(), input, (&digest).into()];
    write(database, lease, COMMIT, &more).await
}

pub(super) async fn release(database: &dyn Sql, lease: &StepLease) -> Result<(), JournalError> {
    write(database, lease, RELEASE, &[]).await
}

pub(super) async fn end(
    database: &dyn Sql,
    run: &OpenRun,
    end: &RunEnd,
) -> Result<(), JournalError> {
    let status = end.status().as_str();
    if let RunEnd::Completed { .. } = end {
        // What it has added is in its steps, and its session has the whole.
        let mut tx = database
            .begin(Wait::Unlimited, Durability::AtCommit)
            .await?;
        let id = check(&mut *tx, run).await?;
        tx.execute(COMPLETE, &[id.into(), status.into()]).await?;
        return Ok(tx.commit().await?);
    }
    let summary = text_of(&RunSummary::from(end))?;
    let mut tx = database
        .begin(Wait::Unlimited, Durability::AtCommit)
        .await?;
    let id = check(&mut *tx, run).await?;
    let (ended, shared) = without_shared(&mut *tx, run, id, end).await?;
    let ended = text_of(&ended)?;
    let values = [
        id.into(),
        status.into(),
        (&ended).into(),
        (&summary).into(),
        shared.into(),
    ];
    tx.execute(END, &values).await?;
    Ok(tx.commit().await?)
}

/// Returns the end of a run without the messages with which its request began, and their number.
async fn without_shared(
    tx: &mut dyn Transaction,
    run: &OpenRun,
    id: i64,
    end: &RunEnd,
) -> Result<(RunEnd, u64), JournalError> {
    let RunEnd::Waiting { checkpoint, state } = end else {
        return Ok((end.clone(), 0));
    };
    let places = messages_of(tx, run, id, run.input).await?;
    let request = match places.read_in(tx, id, &run.id).await {
        // Deleted while the run worked: the end has all that is left of the conversation.
        Err(JournalError::SessionDeleted { .. }) => Vec::new(),
        read => read?,
    };
    let shared = run_messages::common(&checkpoint.messages, &request)?;
    let new = checkpoint.messages.range(shared).cloned().collect();
    let checkpoint = Checkpoint {
        head: checkpoint.head.clone(),
        messages: new,
    };
    let state = state.clone();
    Ok((RunEnd::Waiting { checkpoint, state }, shared as u64))
}

/// Writes to the step of a lease: its run, its name and the attempt are the first arguments.
async fn write(
    database: &dyn Sql,
    lease: &StepLease,
    sql: &'static str,
    more: &[Value<'_>],
) -> Result<(), JournalError> {
    let key = stored_key(&lease.step);
    let mut tx = database
        .begin(Wait::Unlimited, Durability::AtCommit)
        .await?;
    let id = check(&mut *tx, &lease.run).await?;
    let mut values = vec![id.into(), (&key).into(), lease.attempt.into()];
    values.extend_from_slice(more);
    let mut written = tx.execute(sql, &values).await?;
    // A database that was killed meanwhile has lost the beginning of the step, but not whose the
    // run is.
    if written == 0
        && let Some(intent) = &lease.unsynced
        && add_step(&mut *tx, id, lease, intent).await?
    {
        written = tx.execute(sql, &values).await?;
    }
    if written != 1 {
        // Another attempt has begun or ended the step since. The epoch is this process's, so it is
        // a second call in this process, or a lease that was used twice.
        return Err(taken_over(&lease.run));
    }
    Ok(tx.commit().await?)
}

/// Returns the id of the run's row, or fails unless this process has the run. The update locks the
/// row, so that no other process takes the run over before the transaction ends.
async fn check(tx: &mut dyn Transaction, run: &OpenRun) -> Result<i64, JournalError> {
    let values = [run.row.into(), now().into()];
    let Some(row) = tx.fetch_all(CHECK, &values).await?.pop() else {
        return Err(unknown(&run.key()));
    };
    RunStatus::of_open_run(&run.id, row.text("status")?)?;
    if row.number::<u64>("epoch")? != run.epoch {
        return Err(taken_over(run));
    }
    Ok(row.number("id")?)
}

fn taken_over(run: &OpenRun) -> JournalError {
    let run = run.id.clone();
    JournalError::TakenOver { run }
}

pub(super) fn unknown(key: &RunKey) -> JournalError {
    let run = key.run.clone();
    JournalError::UnknownRun { run }
}

/// Returns the end of a run that has not completed, if it has one, without the messages of its
/// request.
pub(super) fn ended(row: &Row) -> Result<Option<RunEnd>, JournalError> {
    Ok(row
        .optional_text("ended")?
        .map(RunEnd::from_json)
        .transpose()?)
}

/// Returns the name of a step in the table. Messages with long ids make long names, which the index
/// of a database cannot have.
fn stored_key(step: &StepId) -> String {
    let key = step.key();
    if StoreError::check_id("step", &key, MAX_ID).is_ok() {
        return key;
    }
    format!(
        "#{}",
        fingerprint::digits(&fingerprint::hash_of(key.as_bytes(), &[]))
    )
}

/// Returns the hash of a record together with its step, by which a change in the database is
/// noticed.
fn digest(record: &str, step: &StepId) -> String {
    let hash = fingerprint::hash_of(record.as_bytes(), step.key().as_bytes());
    fingerprint::digits(&hash)
}

fn text_of(value: &impl Serialize) -> Result<String, JournalError> {
    Ok(to_json(value)?)
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, JournalError> {
    Ok(serde_json::from_str(text).map_err(StoreError::data)?)
}
