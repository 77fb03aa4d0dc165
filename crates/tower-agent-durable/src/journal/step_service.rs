use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Service, ServiceExt};
use tower_agent::call::CallService;
use tower_agent::error::CallSite;
use tower_agent::{Error, ErrorKind, Result};
use tower_layer::Layer;

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::intent::Intent;
use super::journal::{Begun, Journal, Lease};
use super::question::Question;
use super::record::{Outcome, Record};
use super::step_id::{StepId, StepKind};
use super::step_request::StepRequest;
use super::steps::Steps;
use super::unfinished::Unfinished;
use crate::error::StoreError;

/// Journals model and tool calls.
#[derive(Clone)]
pub(super) struct DurableLayer<J>(pub(super) J);

/// Readiness is that of the call: a step that is done does not wait for the service.
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

    fn call(&mut self, request: R) -> Self::Future {
        Box::pin(make(self.inner.clone(), self.journal.clone(), request))
    }
}

async fn make<S, J, R>(inner: S, journal: J, mut request: R) -> Result<R::Response>
where
    R: StepRequest,
    S: CallService<R>,
    J: Journal,
{
    if request.data().get::<InStep>().is_some() {
        // A sub-agent has a journal of its own, for when it is not one.
        return inner
            .oneshot(request)
            .await
            .map_err(|error| Error::from(error.into()));
    }
    request.data().insert(InStep);
    let context = request.context().clone();
    let steps = Steps::of(&context, || CallSite::of(&request).to_string())?;
    let step = steps.name(request.kind(), &context)?;
    let conversation = steps.run.conversation;
    if conversation > 1 {
        // A call of an earlier turn of the run may have had the same id and arguments.
        let key = format!("{}-{conversation}", request.key());
        request = request.with_key(&key);
    }
    let kept = Question::kept(&request)?;
    if let Some(kept) = &kept {
        request = request.with_key(kept.idempotency_key());
    }
    let fingerprint = request.fingerprint()?;
    let intent = Intent {
        fingerprint,
        is_repeatable: request.may_repeat(),
    };
    let mut earlier = 0;
    if let Some(kept) = &kept {
        check(&step, kept.fingerprint(), &intent)?;
        earlier = kept.number_before(&steps.run.id);
    }
    let (mut lease, is_unfinished) = match journal.begin(&steps.run, &step, &intent).await? {
        Begun::Fresh(lease) => (lease, false),
        Begun::Done(then, record) => {
            check(&step, &then.fingerprint, &intent)?;
            return replay(&request, &step, record).await;
        }
        Begun::Unfinished(lease, then) => {
            check(&step, &then.fingerprint, &intent)?;
            (lease, !(intent.is_repeatable && then.is_repeatable))
        }
    };
    let is_fresh = kept.is_some() && !is_unfinished;
    let own = is_unfinished.then(|| Question::about(&request, earlier, &lease, &intent));
    let known = match known(&request, kept, own) {
        Ok(known) => known,
        Err(question) => {
            if is_fresh {
                journal.release(&lease).await?;
            }
            return Err(question);
        }
    };
    match &known {
        Some((_, answer)) => drop(request.data().insert(answer.clone())),
        None if is_unfinished => lease = journal.begin_again(lease).await?,
        None => {}
    }
    let (inside, log) = context.collecting_effects(effects_id(&step));
    let made = inner.oneshot(request.clone().in_context(inside)).await;
    let mut result = made.map_err(|error| Error::from(error.into()));
    match end_of(&request, &intent, &lease, &result) {
        // What is known of it stays so while something around the tool waits.
        End::Release if known.is_some() => {}
        End::Commit => {
            if let Ok(response) = &mut result {
                request.identify(response);
            }
            let outcome = match &result {
                Ok(response) => serde_json::to_value(response).map(Outcome::Response),
                Err(error) => Ok(Outcome::Error(error.clone())),
            };
            let outcome = outcome.map_err(|error| JournalError::from(StoreError::data(error)))?;
            let ending = context
                .ending_after_response(R::CALL)
                .filter(|_| result.is_ok());
            if let Outcome::Error(error) = &outcome {
                // As the journal keeps it, which has no sources: a replay is to go on alike.
                result = Err(as_kept(error)?);
            }
            journal
                .commit(&lease, &Record::new(outcome, log.effects(), ending))
                .await?;
        }
        End::Release => {
            if step.kind == StepKind::Model {
                steps.fail(&step);
            }
            journal.release(&lease).await?;
        }
        End::Leave => {}
        End::Ask => {
            let question = match known {
                Some((question, _)) => question,
                None => Question::about(&request, earlier, &lease, &intent),
            };
            return Err(question.ask(&request, None));
        }
    }
    result
}

fn as_kept(error: &Error) -> Result<Error, JournalError> {
    let kept = serde_json::to_value(error).and_then(serde_json::from_value);
    Ok(kept.map_err(StoreError::data)?)
}

/// What becomes of a step that was made.
enum End {
    Commit,
    /// It was never begun.
    Release,
    /// Whether it has ended is not known.
    Leave,
    /// Likewise, and the run continues once it is.
    Ask,
}

fn end_of<R: StepRequest>(
    request: &R,
    intent: &Intent,
    lease: &Lease,
    result: &Result<R::Response>,
) -> End {
    let is_tool = matches!(lease.step.kind, StepKind::Tool(_));
    match result {
        // A layer has replaced an interrupt by a response: the call is still to be made.
        Ok(_) if request.context().is_waiting(R::CALL) => End::Release,
        // Likewise an abort, of which the journal may have been the reason.
        Ok(_) if request.is_agent() && request.context().aborted().is_some() => End::Release,
        Ok(_) => End::Commit,
        Err(error) if error.downcast_ref::<JournalError>().is_some() => End::Leave,
        Err(error) => match error.kind() {
            ErrorKind::Interrupted => End::Release,
            ErrorKind::Aborted if intent.is_repeatable => End::Release,
            ErrorKind::Aborted => End::Leave,
            ErrorKind::Timeout | ErrorKind::Cancelled if !intent.is_repeatable => End::Ask,
            // The model is told, and the run goes on.
            _ if is_tool => End::Commit,
            // The agent fails; when it is made again, the call may succeed.
            _ => End::Release,
        },
    }
}

/// Returns how the call went, with the question that has the answer, or none if it is to be made.
fn known<R: StepRequest>(
    request: &R,
    kept: Option<Question>,
    own: Option<Question>,
) -> Result<Option<(Question, Unfinished)>> {
    // The attempt that was asked about may be the latest.
    let own = own.filter(|own| {
        kept.as_ref()
            .is_none_or(|kept| kept.number() != own.number())
    });
    for mut question in kept.into_iter().chain(own) {
        match question.answer(request)? {
            Unfinished::RunAgain => {}
            answer => return Ok(Some((question, answer))),
        }
    }
    Ok(None)
}

fn check(step: &StepId, then: &Fingerprint, now: &Intent) -> Result<(), JournalError> {
    match then.difference(&now.fingerprint) {
        Some(part) => Err(JournalError::NonDeterminism {
            step: step.clone(),
            part,
        }),
        None => Ok(()),
    }
}

/// Answers a call as it was answered.
async fn replay<R: StepRequest>(request: &R, step: &StepId, record: Record) -> Result<R::Response> {
    let Record {
        outcome,
        effects,
        ending,
        ..
    } = record;
    let context = request.context();
    context.apply_effects(&effects_id(step), &effects);
    if let Some(ending) = &ending {
        context.end_after_response(R::CALL, ending);
    }
    match outcome {
        Outcome::Error(error) => Err(error),
        Outcome::Response(response) => {
            let response = serde_json::from_value(response);
            let response = response.map_err(|error| JournalError::from(StoreError::data(error)))?;
            request.show(response).await
        }
    }
}

/// Returns a name that no other step of any run has.
fn effects_id(step: &StepId) -> String {
    format!("{} {}", step.run, step.key())
}
