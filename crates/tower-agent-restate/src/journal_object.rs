use std::sync::Arc;
use std::time::SystemTime;

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::{
    ContextClient, ContextReadState, ContextSideEffects, ContextWriteState, HandlerResult, Json,
    ObjectContext, SharedObjectContext, TerminalError,
};
use tower_agent::agent::SavedRequest;

use crate::error::RestateError;
use crate::wire::{
    Answer, Begin, Change, End, Failure, HasBegun, Order, Process, RUN, Resume, Seen, Settle,
    Start, StoredRun, StoredStep, Submit, USER, Write,
};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{
    JournalError, KnownRun, OpenRun, RunEnd, RunKey, RunStatus, StepId, check_answers, next_request,
};

// The keys of the state of a run.
const STORED: &str = "run";
const REQUEST: &str = "request";
const END: &str = "end";
// The same before its process took it, while that may give it back: one value each, since the
// server limits the size of a value.
const STORED_BEFORE: &str = "run before";
const REQUEST_BEFORE: &str = "request before";
const END_BEFORE: &str = "end before";
/// The hash of the request that is being made.
const OPEN: &str = "open";
const FAILURE: &str = "failure";
/// The name under which the worker has the agent.
const AGENT: &str = "agent";

fn step_key(step: &str) -> String {
    format!("step {step}")
}

fn order_key(hash: &str) -> String {
    format!("order {hash}")
}

/// Stores a run: its key is the run's id, and one handler at a time writes to it.
///
/// Handlers are repeated after a crash, so they take the time from the caller.
pub(crate) struct JournalObject;

/// The reason why a handler has no result.
enum Fault {
    /// An answer for the caller.
    Refused(RestateError),
    /// The handler itself has failed, and the server ends the invocation.
    Failed(TerminalError),
}

impl From<RestateError> for Fault {
    fn from(error: RestateError) -> Self {
        Self::Refused(error)
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<TerminalError> for Fault {
    fn from(error: TerminalError) -> Self {
        Self::Failed(error)
    }
}

// A refusal is a response: as an error of the handler, the server would try again or end the
// invocation.
fn answer<T>(made: Result<T, Fault>) -> HandlerResult<Json<Answer<T>>> {
    match made {
        Ok(made) => Ok(Json(Ok(made))),
        Err(Fault::Refused(refused)) => Ok(Json(Err(refused))),
        Err(Fault::Failed(error)) => Err(error.into()),
    }
}

type Context<'a> = ObjectContext<'a>;

async fn stored_run(context: &Context<'_>) -> Result<Option<StoredRun>, Fault> {
    let run = context.get::<Json<StoredRun>>(STORED).await?;
    Ok(run.map(Json::into_inner))
}

/// Returns the id of the run of an object's key.
fn run_id(key: &str) -> Arc<str> {
    RunKey::from_text(key).run
}

/// Tells the object that knows the runs of a user, if the run has one.
async fn tell_user(context: &Context<'_>, handler: &str) -> Result<(), Fault> {
    let key = RunKey::from_text(context.key());
    let Some(user) = &key.user else {
        return Ok(());
    };
    let target = RequestTarget::object(USER, &**user, handler);
    let told = context.request::<Json<RunKey>, Json<Answer<()>>>(target, Json(key.clone()));
    told.call().await?;
    Ok(())
}

fn unknown(context: &Context<'_>) -> JournalError {
    let run = run_id(context.key());
    JournalError::UnknownRun { run }
}

fn taken_over(context: &Context<'_>) -> JournalError {
    let run = run_id(context.key());
    JournalError::TakenOver { run }
}

/// Returns the run if the caller works on it: a later epoch is that of another process, and another
/// row that of another run.
async fn own(context: &Context<'_>, process: Process) -> Result<StoredRun, Fault> {
    let stored = stored_run(context).await?;
    let stored = stored.filter(|stored| stored.run.row() == process.row);
    let stored = stored.ok_or_else(|| unknown(context))?;
    RunStatus::of_open_run(&run_id(context.key()), &stored.status)?;
    if stored.run.epoch != process.epoch {
        return Err(taken_over(context).into());
    }
    Ok(stored)
}

async fn step(context: &Context<'_>, key: &str) -> Result<Option<StoredStep>, Fault> {
    Ok(context
        .get::<Json<StoredStep>>(key)
        .await?
        .map(Json::into_inner))
}

#[restate_sdk::object(
    name = "TowerAgentJournal",
    client_visibility = "pub(crate)",
    lazy_state,
    idempotency_retention = "10m",
    journal_retention = "0s",
    // A paused invocation would stop the run.
    invocation_retry_policy(
        initial_interval = "50ms",
        max_interval = "10s",
        max_attempts = 1000000
    )
)]
impl JournalObject {
    #[handler]
    async fn start(
        &self,
        context: ObjectContext<'_>,
        Json(start): Json<Start>,
    ) -> HandlerResult<Json<Answer<OpenRun>>> {
        answer(start_run(&context, start).await)
    }

    #[handler]
    async fn steps(
        &self,
        context: ObjectContext<'_>,
        Json(process): Json<Process>,
    ) -> HandlerResult<Json<Answer<Vec<StepId>>>> {
        answer(earlier_steps(&context, process).await)
    }

    #[handler]
    async fn begin(
        &self,
        context: ObjectContext<'_>,
        Json(begin): Json<Begin>,
    ) -> HandlerResult<Json<Answer<HasBegun>>> {
        answer(begin_step(&context, begin).await)
    }

    #[handler]
    async fn write(
        &self,
        context: ObjectContext<'_>,
        Json(write): Json<Write>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(write_step(&context, write).await)
    }

    #[handler]
    async fn end(
        &self,
        context: ObjectContext<'_>,
        Json(end): Json<End>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(end_run(&context, end).await)
    }

    #[handler]
    async fn give_back(
        &self,
        context: ObjectContext<'_>,
        Json(process): Json<Process>,
    ) -> HandlerResult<Json<Answer<bool>>> {
        answer(give_back_run(&context, process).await)
    }

    #[handler]
    async fn submit(
        &self,
        context: ObjectContext<'_>,
        Json(submit): Json<Submit>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(submit_request(&context, submit).await)
    }

    #[handler]
    async fn resume(
        &self,
        context: ObjectContext<'_>,
        Json(resume): Json<Resume>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(resume_run(&context, resume).await)
    }

    #[handler]
    async fn settle(
        &self,
        context: ObjectContext<'_>,
        Json(settle): Json<Settle>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(settle_request(&context, settle).await)
    }

    #[handler]
    async fn cancel(
        &self,
        context: ObjectContext<'_>,
        Json(at): Json<SystemTime>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(cancel_run(&context, at).await)
    }

    #[handler]
    async fn delete(
        &self,
        context: ObjectContext<'_>,
        _: Json<()>,
    ) -> HandlerResult<Json<Answer<()>>> {
        answer(delete_run(&context).await)
    }

    #[handler]
    async fn see(
        &self,
        context: SharedObjectContext<'_>,
        _: Json<()>,
    ) -> HandlerResult<Json<Answer<Seen>>> {
        answer(see_run(&context).await)
    }
}

async fn start_run(context: &Context<'_>, start: Start) -> Result<OpenRun, Fault> {
    let Start { input, at } = start;
    let stored = stored_run(context).await?;
    let mut next = match stored {
        None => {
            // Before anything is stored, so that no run of a user is missed.
            tell_user(context, "add").await?;
            StoredRun {
                run: OpenRun::new(input.key(), 1, 1, 1).with_row(new_row(context)),
                ..StoredRun::new(context.key(), input.agent.clone(), at)
            }
        }
        Some(stored) => {
            let run = known_run(context, &stored).await?.start(&input)?;
            keep_before(context, &stored).await?;
            StoredRun { run, ..stored }
        }
    };
    // A request may be delivered again after a crash, and is stored once.
    let is_new = next.fingerprints.last() != Some(&input.fingerprint);
    if is_new {
        context.set(REQUEST, text(&input.request)?);
    }
    // The run has no end until this process writes one.
    context.clear(END);
    if next.run.input == next.run.conversation {
        // A new conversation begins, or its first request is delivered again.
        next.fingerprints.clear();
        next.answers.clear();
    }
    if is_new || next.fingerprints.is_empty() {
        next.fingerprints.push(input.fingerprint);
        next.answers.extend_from_slice(input.request.resolutions());
    }
    next.agent = input.agent;
    next.status = RunStatus::Running.as_str().to_owned();
    next.updated_at = at;
    let run = next.run.clone();
    context.set(STORED, Json(next));
    Ok(run)
}

/// Keeps a run that waits, or whose process was lost, as it is.
async fn keep_before(context: &Context<'_>, stored: &StoredRun) -> Result<(), Fault> {
    forget_before(context);
    let status = RunStatus::from_name(&stored.status);
    if !matches!(status, RunStatus::Waiting | RunStatus::Running) {
        return Ok(());
    }
    context.set(STORED_BEFORE, Json(stored.clone()));
    if let Some(request) = context.get::<String>(REQUEST).await? {
        context.set(REQUEST_BEFORE, request);
    }
    if let Some(end) = context.get::<String>(END).await? {
        context.set(END_BEFORE, end);
    }
    Ok(())
}

fn forget_before(context: &Context<'_>) {
    for key in [STORED_BEFORE, REQUEST_BEFORE, END_BEFORE] {
        context.clear(key);
    }
}

/// Leaves a run as it was before a process took it, and returns whether it is so.
async fn give_back_run(context: &Context<'_>, process: Process) -> Result<bool, Fault> {
    let stored = own(context, process).await?;
    let Some(Json(mut before)) = context.get::<Json<StoredRun>>(STORED_BEFORE).await? else {
        return Ok(false);
    };
    // Nobody has this number again: the process before stays shut out.
    before.run.epoch = stored.run.epoch;
    context.set(STORED, Json(before));
    if let Some(request) = context.get::<String>(REQUEST_BEFORE).await? {
        context.set(REQUEST, request);
    }
    if let Some(end) = context.get::<String>(END_BEFORE).await? {
        context.set(END, end);
    }
    forget_before(context);
    Ok(true)
}

/// Returns a number that no earlier run of this key had. It is the same when the server repeats the
/// handler.
fn new_row(context: &Context<'_>) -> i64 {
    i64::from_be_bytes(context.random_seed().to_be_bytes())
}

async fn known_run(context: &Context<'_>, stored: &StoredRun) -> Result<KnownRun, Fault> {
    let status = RunStatus::of_open_run(&run_id(context.key()), &stored.status)?;
    let mut known = KnownRun::new(stored.run.clone(), status);
    known.fingerprints.clone_from(&stored.fingerprints);
    known.answers.clone_from(&stored.answers);
    if let Some(request) = latest(context).await? {
        known.turn = request.checkpoint().head.turn;
    }
    if let Some(end) = ended(context).await? {
        known.interrupts = end.interrupts().to_vec();
    }
    Ok(known)
}

/// Returns the latest request of the run.
async fn latest(context: &Context<'_>) -> Result<Option<SavedRequest>, Fault> {
    let Some(request) = context.get::<String>(REQUEST).await? else {
        return Ok(None);
    };
    let request = serde_json::from_str(&request).map_err(StoreError::data)?;
    Ok(Some(request))
}

/// Returns the end of the run, if it has one.
async fn ended(context: &Context<'_>) -> Result<Option<RunEnd>, Fault> {
    let Some(end) = context.get::<String>(END).await? else {
        return Ok(None);
    };
    Ok(Some(RunEnd::from_json(&end)?))
}

fn text(value: &impl serde::Serialize) -> Result<String, Fault> {
    Ok(serde_json::to_string(value).map_err(StoreError::data)?)
}

/// Returns the steps of the latest request that have ended or may not be repeated.
async fn earlier_steps(context: &Context<'_>, process: Process) -> Result<Vec<StepId>, Fault> {
    let stored = own(context, process).await?;
    let mut steps = Vec::new();
    for key in context.get_keys().await? {
        if !key.starts_with(&step_key("")) {
            continue;
        }
        let Some(step) = step(context, &key).await? else {
            continue;
        };
        let is_needed = step.record.is_some() || !step.intent.is_repeatable;
        if step.input == stored.run.input && is_needed {
            steps.push(step.id);
        }
    }
    Ok(steps)
}

async fn begin_step(context: &Context<'_>, begin: Begin) -> Result<HasBegun, Fault> {
    let Begin {
        process,
        step: id,
        intent,
        at,
    } = begin;
    let stored = own(context, process).await?;
    let key = step_key(&id.key());
    // A step that is known is never begun anew: the caller gets its record, or decides what to do
    // with one that has none.
    if let Some(known) = step(context, &key).await? {
        let StoredStep {
            intent, attempt, ..
        } = known;
        return Ok(match known.record {
            Some(record) => HasBegun::Done { intent, record },
            None => HasBegun::Unfinished { intent, attempt },
        });
    }
    let step = StoredStep {
        id,
        intent,
        input: stored.run.input,
        attempt: 1,
        begun_at: at,
        ended_at: None,
        record: None,
    };
    context.set(&key, Json(step));
    Ok(HasBegun::Fresh)
}

async fn write_step(context: &Context<'_>, write: Write) -> Result<(), Fault> {
    let Write {
        process,
        step: key,
        attempt,
        change,
        at,
    } = write;
    let stored = own(context, process).await?;
    let key = step_key(&key);
    let step = step(context, &key).await?;
    // A step that another attempt has begun, ended or released belongs to that attempt.
    let mut step = step
        .filter(|step| step.attempt == attempt && step.record.is_none())
        .ok_or_else(|| taken_over(context))?;
    step.input = stored.run.input;
    match change {
        Change::Release => {
            context.clear(&key);
            return Ok(());
        }
        Change::BeginAgain => {
            // A new number shuts out the attempt before, which may still run in another process.
            step.attempt = attempt.saturating_add(1);
            step.begun_at = at;
        }
        Change::Commit(record) => {
            step.record = Some(record);
            step.ended_at = Some(at);
        }
    }
    context.set(&key, Json(step));
    Ok(())
}

async fn end_run(context: &Context<'_>, end: End) -> Result<(), Fault> {
    let mut stored = own(context, end.process).await?;
    stored.status = end.status;
    stored.updated_at = end.at;
    context.set(STORED, Json(stored));
    forget_before(context);
    // As text, which a worker of another version stores as it is.
    context.set(END, end.end);
    Ok(())
}

/// Submits a request once: a second submission repeats it only if it has failed.
async fn submit_request(context: &Context<'_>, submit: Submit) -> Result<(), Fault> {
    let Submit {
        agent,
        request,
        hash,
    } = submit;
    match find_order(context, &hash).await? {
        // The same request again is the same run, so that a client may repeat a call that got no
        // answer.
        Some(order) if order.is_open || !order.is_to_repeat => Ok(()),
        _ => order(context, agent, request, hash).await,
    }
}

/// Submits the resolutions for a run that waits once, as [`submit_request`] does.
async fn resume_run(context: &Context<'_>, resume: Resume) -> Result<(), Fault> {
    let Resume {
        resolutions,
        hash,
        at,
    } = resume;
    let known = find_order(context, &hash).await?;
    if known
        .as_ref()
        .is_some_and(|order| order.is_open || !order.is_to_repeat)
    {
        return Ok(());
    }
    let stored = stored_run(context).await?;
    let stored = stored.ok_or_else(|| unknown(context))?;
    let request = latest(context).await?.ok_or_else(|| unknown(context))?;
    // The worker's name for the agent, if the engine has started the run.
    let agent = match context.get::<String>(AGENT).await? {
        Some(agent) => agent.into(),
        None => stored.agent,
    };
    // The resolutions were taken, and the run has failed after that: its latest request contains
    // them.
    if known.is_some() && stored.status != RunStatus::Waiting.as_str() {
        return order(context, agent, request, hash).await;
    }
    let end = ended(context).await?;
    let open = end.as_ref().map_or(&[][..], RunEnd::interrupts);
    let run = run_id(context.key());
    let mut answers = resolutions.iter();
    if let Some(unasked) = answers.find(|answer| open.iter().all(|open| open.id != answer.id)) {
        let interrupt = unasked.id.clone();
        return Err(RestateError::NotAsked { run, interrupt }.into());
    }
    check_answers(&run, open, &resolutions, at)?;
    let request = next_request(request, end, at).with_resolutions(resolutions);
    order(context, agent, SavedRequest::from(&request), hash).await
}

async fn find_order(context: &Context<'_>, hash: &str) -> Result<Option<Order>, Fault> {
    if let Some(stored) = stored_run(context).await? {
        RunStatus::of_open_run(&run_id(context.key()), &stored.status)?;
    }
    let order = context.get::<Json<Order>>(&order_key(hash)).await?;
    Ok(order.map(Json::into_inner))
}

/// Sends a request to the object that makes the run.
async fn order(
    context: &Context<'_>,
    agent: Arc<str>,
    request: SavedRequest,
    hash: String,
) -> Result<(), Fault> {
    // One request at a time: the run's object would queue a second one, and make it with a
    // conversation that has gone on.
    if context.get::<String>(OPEN).await?.is_some() {
        let run = run_id(context.key());
        return Err(JournalError::OtherRequest { run }.into());
    }
    tell_user(context, "add").await?;
    let target = RequestTarget::object(RUN, context.key(), "make");
    let submit = Submit {
        agent: agent.clone(),
        request,
        hash: hash.clone(),
    };
    let sent = context
        .request::<Json<Submit>, ()>(target, Json(submit))
        .send()
        .await?;
    let invocation = sent.invocation_id().to_owned();
    let order = Order {
        agent: agent.clone(),
        invocation,
        is_open: true,
        is_to_repeat: false,
    };
    context.set(&order_key(&hash), Json(order));
    // Set before the run can settle it: handlers of one key run one after another.
    context.set(OPEN, hash);
    context.set(AGENT, agent.to_string());
    // It belongs to the invocation before.
    context.clear(FAILURE);
    Ok(())
}

async fn open_order(context: &Context<'_>) -> Result<Option<(String, Order)>, Fault> {
    let Some(hash) = context.get::<String>(OPEN).await? else {
        return Ok(None);
    };
    let key = order_key(&hash);
    let order = context.get::<Json<Order>>(&key).await?;
    Ok(order.map(|Json(order)| (key, order)))
}

async fn settle_request(context: &Context<'_>, settle: Settle) -> Result<(), Fault> {
    let Some((key, order)) = open_order(context).await? else {
        return Ok(());
    };
    if order.invocation != settle.invocation {
        // A client has settled it before, as one that was killed.
        return Ok(());
    }
    let has_failed = match stored_run(context).await? {
        Some(stored) => stored.status == RunStatus::Failed.as_str(),
        None => true,
    };
    let settled = Order {
        is_open: false,
        is_to_repeat: has_failed || settle.outcome.is_err(),
        ..order
    };
    context.set(&key, Json(settled));
    context.clear(OPEN);
    if let Err(failure) = settle.outcome {
        context.set(FAILURE, Json(failure));
    }
    Ok(())
}

async fn cancel_run(context: &Context<'_>, at: SystemTime) -> Result<(), Fault> {
    let stored = stored_run(context).await?;
    let open = open_order(context).await?;
    let mut cancelled = match (stored, &open) {
        (Some(stored), None) if stored.status == RunStatus::Completed.as_str() => return Ok(()),
        (Some(stored), _) => stored,
        // It was submitted, and no worker has started it.
        (None, Some((_, order))) => StoredRun::new(context.key(), order.agent.clone(), at),
        (None, None) => return Err(unknown(context).into()),
    };
    if let Some((_, order)) = open {
        context.invocation_handle(order.invocation).cancel();
    }
    cancelled.status = RunStatus::Cancelled.as_str().to_owned();
    // Shuts out the worker, which may not notice the cancelled invocation before its next write.
    cancelled.run.epoch = cancelled.run.epoch.saturating_add(1);
    cancelled.updated_at = at;
    context.set(STORED, Json(cancelled));
    context.clear(OPEN);
    Ok(())
}

async fn delete_run(context: &Context<'_>) -> Result<(), Fault> {
    let stored = stored_run(context).await?;
    let open = open_order(context).await?;
    if stored.is_none() && open.is_none() {
        return Err(unknown(context).into());
    }
    if let Some((_, order)) = open {
        context.invocation_handle(order.invocation).cancel();
    }
    context.clear_all();
    tell_user(context, "remove").await
}

async fn see_run(context: &SharedObjectContext<'_>) -> Result<Seen, Fault> {
    let run = context.get::<Json<StoredRun>>(STORED).await?;
    let order = match context.get::<String>(OPEN).await? {
        Some(hash) => context.get::<Json<Order>>(&order_key(&hash)).await?,
        None => None,
    };
    let failure = context.get::<Json<Failure>>(FAILURE).await?;
    let end = context.get::<String>(END).await?;
    if run.is_none() && order.is_none() && failure.is_none() {
        let run = run_id(context.key());
        return Err(JournalError::UnknownRun { run }.into());
    }
    Ok(Seen {
        run: run.map(Json::into_inner),
        invocation: order.map(|Json(order)| order.invocation),
        failure: failure.map(Json::into_inner),
        end,
    })
}
