use std::future::Future;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use serde_json::value::to_raw_value;
use tower::{Service, ServiceExt};
use tower_agent::call::{
    CallService, end_after_response, ending_after_response, is_unmade, is_waiting, stays_open,
};
use tower_agent::context::EffectLog;
use tower_agent::error::CallSite;
use tower_agent::{Error, ErrorKind, Result};
use tower_layer::Layer;

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::intent::Intent;
use super::journal::{Journal, StepLease, StepState};
use super::question::Question;
use super::record::{StepOutcome, StepRecord};
use super::step_id::{StepId, StepKind};
use super::step_request::StepRequest;
use super::steps::Steps;
use super::unfinished::UnfinishedStep;
use tower_agent_conversations::StoreError;

/// Journals model and tool calls.
#[derive(Clone)]
pub(super) struct DurableLayer<J>(pub(super) J);

/// Always ready, and waits for the inner service in the call: a step that is replayed does not need
/// it.
#[derive(Clone)]
pub(super) struct StepService<S, J> {
    inner: S,
    journal: J,
}

/// Marks a call that is a step already.
struct InStep;

impl<S, J: Journal> Layer<S> for DurableLayer<J> {
    type Service = StepService<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        StepService {
            inner,
            journal: self.0.clone(),
        }
    }
}

impl<S, J, R> Service<R> for StepService<S, J>
where
    R: StepRequest,
    S: CallService<R>,
    J: Journal,
{
    type Response = R::Response;
    type Error = Error;
    type Future = BoxFuture<'static, Result<R::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let inner = self.inner.clone();
        if request.data().get::<InStep>().is_some() {
            // An agent that is durable by itself, here as a sub-agent, has a second layer. The
            // outer one has named the step; two names would count it twice.
            return Box::pin(make_call(inner, request));
        }
        request.data().insert(InStep);
        Box::pin(make(inner, self.journal.clone(), request))
    }
}

/// Makes a call once the service is ready.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn would store its arguments twice"
)]
fn make_call<S, R>(mut inner: S, request: R) -> impl Future<Output = Result<R::Response>> + Send
where
    R: StepRequest,
    S: CallService<R>,
{
    async move {
        let ready = inner.ready().await;
        let ready = ready.map_err(|error| Error::from(error.into()))?;
        let response = ready.call(request).await;
        response.map_err(|error| Error::from(error.into()))
    }
}

/// Makes a step.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn would store its arguments twice"
)]
fn make<S, J, R>(
    inner: S,
    journal: J,
    mut request: R,
) -> impl Future<Output = Result<R::Response>> + Send
where
    R: StepRequest,
    S: CallService<R>,
    J: Journal,
{
    async move {
        let context = request.context();
        let steps = Steps::of(context, || CallSite::of(&request).to_string())?;
        let step = steps.name(request.kind(), context)?;
        // Code inside may change the arguments, and an operator looks for the key that the tool
        // had.
        request = request.keep_key();
        if step.kind != StepKind::Model
            && let Some(key) = steps
                .run
                .own_key(|| request.key())
                .map_err(JournalError::from)?
        {
            request = request.with_key(&key);
        }
        // A call that was asked about keeps the key that the question shows, so that `RunAgain`
        // cannot make the service act twice.
        let stored = Question::stored(&request)?;
        if let Some(question) = &stored {
            request = request.with_key(question.idempotency_key());
        }
        let fingerprint = request.fingerprint(&steps.known)?;
        let intent = Intent {
            fingerprint,
            is_repeatable: request.may_repeat(),
        };
        let mut earlier = 0;
        if let Some(question) = &stored {
            // The answer is about the call that was shown, not about one with other arguments.
            check(&step, question.fingerprint(), &intent)?;
            earlier = question.number_before(&steps.run.id);
        }
        // From here on the journal has the start: a crash at any later point leaves an unfinished
        // step.
        let (mut lease, is_unfinished) = match journal.begin(&steps.run, &step, &intent).await? {
            StepState::Fresh(lease) => {
                if let Err(refused) = steps.check_new(&step).await {
                    journal.release(&lease).await?;
                    return Err(refused.into());
                }
                (lease, false)
            }
            StepState::Done(then, record) => {
                check(&step, &then.fingerprint, &intent)?;
                steps.reach(&step, true);
                // In a box: its future is larger than all that a call which is made needs.
                return Box::pin(replay(&request, &step, record)).await;
            }
            StepState::Unfinished(lease, then) => {
                check(&step, &then.fingerprint, &intent)?;
                steps.reach(&step, false);
                // The tool may have been declared differently when the attempt was made. Both must
                // allow it.
                (lease, !(intent.is_repeatable && then.is_repeatable))
            }
        };
        let is_asked_by_earlier_run = stored.is_some() && !is_unfinished;
        let own = is_unfinished.then(|| Question::about(&request, earlier, &lease, &intent));
        let known = match known_answer(&request, stored, own) {
            Ok(known) => known,
            Err(interrupt) => {
                // No attempt of this run is in doubt. Left in the journal, its step would look
                // unfinished and add a second question.
                if is_asked_by_earlier_run {
                    journal.release(&lease).await?;
                }
                return Err(interrupt);
            }
        };
        match &known {
            // The call still goes through its callbacks and layers; `AnswerUnfinished` answers it
            // innermost.
            Some((_, answer)) => {
                // The tool, which may have called agents, is not called.
                steps.reach(&step, true);
                request.data().insert(answer.clone());
            }
            // A new attempt has a new number, so that a late commit of the previous one is refused.
            None if is_unfinished => lease = journal.begin_again(lease).await?,
            None => {}
        }
        steps.note_begun();
        // A replay applies these effects instead of running what is inside.
        let (inside, log) = EffectLog::collect(request.context(), effects_id(&step));
        let mut result = make_call(inner, request.clone().in_context(inside)).await;
        match end_of(&request, &intent, &lease, &result) {
            // The operator's answer must survive: something around the tool waits, and without this
            // step the next request would call the tool.
            End::Release if known.is_some() => {}
            End::Commit => {
                // Before it is stored, so that the replayed message has the same id.
                if let Ok(response) = &mut result {
                    request.identify(response);
                }
                let outcome = match &result {
                    Ok(response) => to_raw_value(response).map(StepOutcome::Response),
                    Err(error) => Ok(StepOutcome::Error(error.clone())),
                };
                let outcome =
                    outcome.map_err(|error| JournalError::from(StoreError::data(error)))?;
                let ending = ending_after_response(&request).filter(|_| result.is_ok());
                if let StepOutcome::Error(error) = &outcome {
                    // The journal stores errors without their sources. A callback that looks for a
                    // source must decide now as it will in a replay.
                    result = Err(as_stored(error)?);
                }
                // The response leaves this function only once it is stored: whoever acts on it,
                // such as the next model call, must not be ahead of the journal.
                journal
                    .commit(&lease, &StepRecord::new(outcome, log.effects(), ending))
                    .await?;
            }
            End::Release => {
                if step.kind == StepKind::Model {
                    steps.fail(&step);
                }
                // The journal counts its attempts anew from here on.
                if let Some(question) = Question::stored(&request)? {
                    question.pass(&request, &lease);
                }
                journal.release(&lease).await?;
            }
            End::Unmade => {
                journal.release(&lease).await?;
                steps.note_unmade();
            }
            End::Leave => {}
            End::Ask => {
                let mut question = match known {
                    Some((question, _)) => question,
                    None => Question::about(&request, earlier, &lease, &intent),
                };
                return Err(question.ask(&request, None));
            }
        }
        result
    }
}

/// Returns the error as a replay will read it from the journal.
fn as_stored(error: &Error) -> Result<Error, JournalError> {
    let stored = serde_json::to_value(error).and_then(serde_json::from_value);
    Ok(stored.map_err(StoreError::data)?)
}

/// The write to the journal after a step's call.
enum End {
    /// StepRecord the outcome.
    Commit,
    /// Forget the step, as if it was never begun.
    Release,
    /// Forget the step, which this program may not make.
    Unmade,
    /// Leave it unfinished: the call may have been made.
    Leave,
    /// Leave it unfinished, and interrupt the run with the question about it.
    Ask,
}

/// Decides how a step ends. A result that a replay may repeat is committed; a call that is to be
/// made again is released; one that may have acted, and must not be repeated, stays in the journal.
fn end_of<R: StepRequest>(
    request: &R,
    intent: &Intent,
    lease: &StepLease,
    result: &Result<R::Response>,
) -> End {
    let is_tool = matches!(lease.step.kind, StepKind::Tool(_));
    match result {
        // A layer has replaced an interrupt by a response: the call is still to be made.
        Ok(_) if is_waiting(request) => End::Release,
        // A layer inside a sub-agent has answered for an aborted run. The abort may come from the
        // journal, so the answer is not the agent's.
        Ok(_) if request.is_agent() && request.context().aborted().is_some() => End::Release,
        Ok(_) => End::Commit,
        // The journal has failed below, as in a sub-agent, and cannot be written here either.
        Err(error) if error.downcast_ref::<JournalError>().is_some() => End::Leave,
        Err(error) if stays_open(error) => End::Unmade,
        Err(error) => match error.kind() {
            ErrorKind::Interrupted => End::Release,
            // Of the whole run, which asks nobody.
            kind if error.is_ending() && kind != ErrorKind::InvocationEnded => {
                if intent.is_repeatable || is_unmade(request) {
                    End::Release
                } else {
                    End::Leave
                }
            }
            // The tool may have acted before it was stopped, and the run itself is still alive to
            // ask.
            ErrorKind::Timeout | ErrorKind::Cancelled if !intent.is_repeatable => End::Ask,
            // The model reads the error, so a replay must show it the same one.
            _ if is_tool => End::Commit,
            // The agent fails; when it is made again, the call may succeed.
            _ => End::Release,
        },
    }
}

/// Returns the operator's answer about an earlier attempt, with its question; `None` if the call is
/// to be made.
fn known_answer<R: StepRequest>(
    request: &R,
    stored: Option<Question>,
    own: Option<Question>,
) -> Result<Option<(Question, UnfinishedStep)>> {
    // The stored question may be about the attempt that is unfinished here: it is asked once.
    let own = own.filter(|own| {
        stored
            .as_ref()
            .is_none_or(|stored| stored.number() != own.number())
    });
    // The older attempt first. If the operator lets it run again, the later one still needs an
    // answer.
    for mut question in stored.into_iter().chain(own) {
        match question.answer(request)? {
            UnfinishedStep::RunAgain => {}
            answer => return Ok(Some((question, answer))),
        }
    }
    Ok(None)
}

/// Fails if the call is not the one that the journal has under this name.
fn check(step: &StepId, then: &Fingerprint, now: &Intent) -> Result<(), JournalError> {
    match then.difference(&now.fingerprint) {
        Some(part) => Err(JournalError::NonDeterminism {
            step: step.clone(),
            part,
        }),
        None => Ok(()),
    }
}

/// Answers a call from its record, with the same effects on the run.
async fn replay<R: StepRequest>(
    request: &R,
    step: &StepId,
    record: StepRecord,
) -> Result<R::Response> {
    let StepRecord {
        outcome,
        effects,
        ending,
        ..
    } = record;
    effects.apply(request.context(), &effects_id(step));
    if let Some(ending) = &ending {
        end_after_response(request, ending);
    }
    match outcome {
        StepOutcome::Error(error) => Err(error),
        StepOutcome::Response(response) => {
            let response = serde_json::from_str(response.get());
            let response = response.map_err(|error| JournalError::from(StoreError::data(error)))?;
            request.show(response).await
        }
    }
}

/// Returns a name that no other step of any run has.
fn effects_id(step: &StepId) -> String {
    [&*step.run, " ", &step.key()].concat()
}
