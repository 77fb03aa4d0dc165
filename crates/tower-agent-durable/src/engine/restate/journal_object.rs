use std::sync::Arc;

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::{
    ContextClient, ContextReadState, ContextWriteState, HandlerResult, Json, ObjectContext,
    SharedObjectContext, TerminalError,
};
use tower_agent::agent::SavedRequest;

use super::wire::{
    Answer, Begin, Change, End, HasBegun, Kept, KeptStep, Order, RUN, Refused, Resume, Seen,
    Settle, Start, Started, Submit, Write,
};
use crate::error::StoreError;
use crate::journal::{Input, JournalError, KnownRun, OpenRun, RunEnd, RunStatus, next_request};

// The keys of the state of a run.
const KEPT: &str = "run";
const REQUEST: &str = "request";
const END: &str = "end";
/// The hash of the request that is being made.
const OPEN: &str = "open";
const REFUSED: &str = "refused";
/// The name under which the worker has the agent.
const AGENT: &str = "agent";

fn step_key(step: &str) -> String {
    format!("step {step}")
}

fn order_key(hash: &str) -> String {
    format!("order {hash}")
}

/// Keeps a run: its key is the run's id, and one handler at a time writes to it.
///
/// Handlers are made again after a crash, so they take the time from who calls them.
pub(super) struct JournalObject;

/// Why a handler answers otherwise.
enum Fault {
    Refused(Refused),
    Failed(TerminalError),
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        let refused = Refused::of_journal(&error);
        Self::Refused(refused.unwrap_or_else(|error| Refused::Data {
            why: error.to_string(),
        }))
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        JournalError::from(error).into()
    }
}

impl From<TerminalError> for Fault {
    fn from(error: TerminalError) -> Self {
        Self::Failed(error)
    }
}

fn answer<T>(made: Result<T, Fault>) -> HandlerResult<Json<Answer<T>>> {
    match made {
        Ok(made) => Ok(Json(Ok(made))),
        Err(Fault::Refused(refused)) => Ok(Json(Err(refused))),
        Err(Fault::Failed(error)) => Err(error.into()),
    }
}

type Context<'a> = ObjectContext<'a>;

async fn kept(context: &Context<'_>) -> Result<Option<Kept>, Fault> {
    Ok(context.get::<Json<Kept>>(KEPT).await?.map(Json::into_inner))
}

/// Returns the run, if who has this epoch works on it.
async fn own(context: &Context<'_>, epoch: u64) -> Result<Kept, Fault> {
    let kept = kept(context).await?.ok_or(Refused::UnknownRun)?;
    RunStatus::of_open(context.key(), &kept.status)?;
    match kept.epoch == epoch {
        true => Ok(kept),
        false => Err(Refused::TakenOver.into()),
    }
}

async fn step(context: &Context<'_>, key: &str) -> Result<Option<KeptStep>, Fault> {
    Ok(context
        .get::<Json<KeptStep>>(key)
        .await?
        .map(Json::into_inner))
}

#[restate_sdk::object(
    name = "TowerAgentJournal",
    client_visibility = "pub(super)",
    lazy_state,
    idempotency_retention = "10m",
    journal_retention = "0s",
    // A paused one would hold up the run.
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
    ) -> HandlerResult<Json<Answer<Started>>> {
        answer(start_run(&context, start).await)
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
        Json(at): Json<i64>,
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

async fn start_run(context: &Context<'_>, start: Start) -> Result<Started, Fault> {
    let Start {
        agent,
        request,
        fingerprint,
        is_retried,
        at,
    } = start;
    let known = kept(context).await?;
    let started_at = known.as_ref().map_or(at, |kept| kept.started_at);
    let (mut fingerprints, mut answers) = known
        .as_ref()
        .map(|kept| (kept.fingerprints.clone(), kept.answers.clone()))
        .unwrap_or_default();
    let is_new = fingerprints.last() != Some(&fingerprint);
    let run = match known {
        None => OpenRun::new(context.key(), 1, 1, 1),
        Some(kept) => {
            let input = Input {
                agent: agent.clone(),
                request: request.clone(),
                fingerprint: fingerprint.clone(),
                is_retried,
            };
            known_run(context, kept).await?.start(&input)?
        }
    };
    if is_new {
        context.set(REQUEST, text(&request)?);
    }
    context.clear(END);
    let OpenRun {
        epoch,
        input,
        conversation,
        ..
    } = run;
    if input == conversation {
        (fingerprints, answers) = Default::default();
    }
    if is_new || fingerprints.is_empty() {
        fingerprints.push(fingerprint);
        answers.extend_from_slice(request.resolutions());
    }
    let new = Kept::new(agent, started_at);
    let kept = Kept {
        epoch,
        input,
        conversation,
        fingerprints,
        answers,
        updated_at: at,
        ..new
    };
    context.set(KEPT, Json(kept));
    Ok(Started {
        epoch,
        input,
        conversation,
    })
}

async fn known_run(context: &Context<'_>, kept: Kept) -> Result<KnownRun, Fault> {
    let Kept {
        epoch,
        input,
        conversation,
        status,
        fingerprints,
        answers,
        ..
    } = kept;
    let status = RunStatus::of_open(context.key(), &status)?;
    let turn = latest(context)
        .await?
        .map_or(0, |request| request.checkpoint().turn);
    let interrupts = ended(context)
        .await?
        .iter()
        .flat_map(RunEnd::interrupts)
        .cloned()
        .collect();
    Ok(KnownRun {
        status,
        epoch,
        input,
        conversation,
        fingerprints,
        answers,
        turn,
        interrupts,
    })
}

/// Returns the latest request of the run.
async fn latest(context: &Context<'_>) -> Result<Option<SavedRequest>, Fault> {
    let request = context.get::<String>(REQUEST).await?;
    let read = |request: String| serde_json::from_str(&request).map_err(StoreError::data);
    Ok(request.map(read).transpose()?)
}

/// Returns how the run has ended, if it has.
async fn ended(context: &Context<'_>) -> Result<Option<RunEnd>, Fault> {
    let end = context.get::<String>(END).await?;
    Ok(end.map(|end| RunEnd::read(&end)).transpose()?)
}

fn text(value: &impl serde::Serialize) -> Result<String, Fault> {
    Ok(serde_json::to_string(value).map_err(StoreError::data)?)
}

async fn begin_step(context: &Context<'_>, begin: Begin) -> Result<HasBegun, Fault> {
    let Begin {
        epoch,
        step: id,
        intent,
        at,
    } = begin;
    own(context, epoch).await?;
    let key = step_key(&id.key());
    if let Some(known) = step(context, &key).await? {
        let KeptStep {
            intent, attempt, ..
        } = known;
        return Ok(match known.record {
            Some(record) => HasBegun::Done { intent, record },
            None => HasBegun::Unfinished { intent, attempt },
        });
    }
    let step = KeptStep {
        id,
        intent,
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
        epoch,
        step: key,
        attempt,
        change,
        at,
    } = write;
    own(context, epoch).await?;
    let key = step_key(&key);
    let step = step(context, &key).await?;
    let is_leased = |step: &KeptStep| step.attempt == attempt && step.record.is_none();
    // Another attempt has written to it.
    let mut step = step.filter(is_leased).ok_or(Refused::TakenOver)?;
    match change {
        Change::Release => {
            context.clear(&key);
            return Ok(());
        }
        Change::BeginAgain => {
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
    let kept = own(context, end.epoch).await?;
    context.set(
        KEPT,
        Json(Kept {
            status: end.status,
            updated_at: end.at,
            ..kept
        }),
    );
    context.set(END, end.end);
    Ok(())
}

/// Has a request made once: handed in again, it is made again only if it has failed.
async fn submit_request(context: &Context<'_>, submit: Submit) -> Result<(), Fault> {
    let Submit {
        agent,
        request,
        hash,
    } = submit;
    match find_order(context, &hash).await? {
        Some(order) if order.is_open || !order.is_to_repeat => Ok(()),
        _ => order(context, agent, request, hash).await,
    }
}

/// Likewise with the answers to what the run waits for.
async fn resume_run(context: &Context<'_>, resume: Resume) -> Result<(), Fault> {
    let Resume { resolutions, hash } = resume;
    let known = find_order(context, &hash).await?;
    if known
        .as_ref()
        .is_some_and(|order| order.is_open || !order.is_to_repeat)
    {
        return Ok(());
    }
    let kept = kept(context).await?.ok_or(Refused::UnknownRun)?;
    let request = latest(context).await?.ok_or(Refused::UnknownRun)?;
    let agent = context
        .get::<String>(AGENT)
        .await?
        .map_or(kept.agent, Arc::from);
    if known.is_some() && kept.status != RunStatus::Waiting.as_str() {
        return order(context, agent, request, hash).await;
    }
    let end = ended(context).await?;
    let asked = end.as_ref().map_or(&[][..], RunEnd::interrupts);
    let is_asked = |id: &str| asked.iter().any(|asked| asked.id == id);
    if let Some(other) = resolutions.iter().find(|it| !is_asked(&it.id)) {
        return Err(Refused::NotAsked {
            interrupt: other.id.clone(),
        }
        .into());
    }
    let request = next_request(request, end).with_resolutions(resolutions);
    order(context, agent, SavedRequest::from(&request), hash).await
}

async fn find_order(context: &Context<'_>, hash: &str) -> Result<Option<Order>, Fault> {
    if let Some(kept) = kept(context).await? {
        RunStatus::of_open(context.key(), &kept.status)?;
    }
    Ok(context
        .get::<Json<Order>>(&order_key(hash))
        .await?
        .map(Json::into_inner))
}

/// Hands a request to the object that makes the run.
async fn order(
    context: &Context<'_>,
    agent: Arc<str>,
    request: SavedRequest,
    hash: String,
) -> Result<(), Fault> {
    if context.get::<String>(OPEN).await?.is_some() {
        return Err(Refused::OtherRequest.into());
    }
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
    context.set(OPEN, hash);
    context.set(AGENT, agent.to_string());
    context.clear(REFUSED);
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
        return Ok(());
    }
    let has_failed = match kept(context).await? {
        Some(kept) => kept.status == RunStatus::Failed.as_str(),
        None => true,
    };
    let is_to_repeat = has_failed || settle.outcome.is_err();
    context.set(
        &key,
        Json(Order {
            is_open: false,
            is_to_repeat,
            ..order
        }),
    );
    context.clear(OPEN);
    if let Err(refused) = settle.outcome {
        context.set(REFUSED, Json(refused));
    }
    Ok(())
}

async fn cancel_run(context: &Context<'_>, at: i64) -> Result<(), Fault> {
    let (kept, open) = (kept(context).await?, open_order(context).await?);
    let is_over = |kept: &Kept| kept.status == RunStatus::Completed.as_str();
    if open.is_none() && kept.as_ref().is_some_and(is_over) {
        return Ok(());
    }
    if let Some((_, order)) = &open {
        context.invocation_handle(order.invocation.clone()).cancel();
    }
    let kept = match (kept, open) {
        (Some(kept), _) => kept,
        // It was handed in, and nobody has started it.
        (None, Some((_, order))) => Kept::new(order.agent, at),
        (None, None) => return Err(Refused::UnknownRun.into()),
    };
    let (status, epoch) = (
        RunStatus::Cancelled.as_str().to_owned(),
        kept.epoch.saturating_add(1),
    );
    context.set(
        KEPT,
        Json(Kept {
            status,
            epoch,
            updated_at: at,
            ..kept
        }),
    );
    context.clear(OPEN);
    Ok(())
}

async fn delete_run(context: &Context<'_>) -> Result<(), Fault> {
    let (kept, open) = (kept(context).await?, open_order(context).await?);
    if kept.is_none() && open.is_none() {
        return Err(Refused::UnknownRun.into());
    }
    if let Some((_, order)) = open {
        context.invocation_handle(order.invocation).cancel();
    }
    context.clear_all();
    Ok(())
}

async fn see_run(context: &SharedObjectContext<'_>) -> Result<Seen, Fault> {
    let kept = context.get::<Json<Kept>>(KEPT).await?.map(Json::into_inner);
    let invocation = match context.get::<String>(OPEN).await? {
        Some(hash) => context.get::<Json<Order>>(&order_key(&hash)).await?,
        None => None,
    };
    let refused = context
        .get::<Json<Refused>>(REFUSED)
        .await?
        .map(Json::into_inner);
    let end = context.get::<String>(END).await?;
    let invocation = invocation.map(|Json(order)| order.invocation);
    match (&kept, &invocation, &refused) {
        (None, None, None) => Err(Refused::UnknownRun.into()),
        _ => Ok(Seen {
            kept,
            invocation,
            refused,
            end,
        }),
    }
}
