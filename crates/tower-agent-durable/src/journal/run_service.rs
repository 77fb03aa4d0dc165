use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Service, ServiceExt};
use tower_agent::call::{CallService, Origin};
use tower_agent::{AgentRequest, AgentResponse, Checkpoint, Error, Request, Result};
use tower_layer::Layer;

use super::earlier_steps::EarlierSteps;
use super::error::JournalError;
use super::input::Input;
use super::journal::Journal;
use super::run_end::RunEnd;
use super::steps::Steps;
use crate::accepted::Accepted;
use crate::sessions::OpenCalls;

/// Journals runs.
#[derive(Clone)]
pub(super) struct DurableRunLayer<J>(pub(super) J);

#[derive(Clone)]
pub(super) struct RunService<S, J> {
    inner: S,
    journal: J,
}

impl<S, J: Journal> Layer<S> for DurableRunLayer<J> {
    type Service = RunService<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        RunService {
            inner,
            journal: self.0.clone(),
        }
    }
}

impl<S, J> Service<AgentRequest> for RunService<S, J>
where
    S: CallService<AgentRequest>,
    J: Journal,
{
    type Response = AgentResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<AgentResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AgentRequest) -> Self::Future {
        Box::pin(make(self.inner.clone(), self.journal.clone(), request))
    }
}

async fn make<S, J>(inner: S, journal: J, request: AgentRequest) -> Result<AgentResponse>
where
    S: CallService<AgentRequest>,
    J: Journal,
{
    let context = request.context().clone();
    let is_outermost = !context.path().contains('/');
    if !is_outermost {
        // A sub-agent is part of the run: it has no start and no end of its own. But its calls need the
        // run's steps, so a misplaced journal fails here and not at the first call.
        Steps::of(&context, || format!("agent `{}`", context.path()))?.enter(&context);
        return inner
            .oneshot(request)
            .await
            .map_err(|error| Error::from(error.into()));
    }
    // The session stores that a journal takes part before the journal starts the run: a crash in between
    // then leaves the open calls to the journal, and nobody repeats them unseen.
    let open = OpenCalls::of(&context);
    if let Some(open) = &open {
        open.note_journal().await?;
    }
    let run = journal.start(&Input::new(&request)?).await?;
    if let Some(open) = &open {
        open.take_over().await;
    }
    Accepted::tell(&request);
    let earlier = if run.epoch > 1 {
        EarlierSteps::new(journal.earlier_steps(&run).await?)
    } else {
        EarlierSteps::default()
    };
    Steps::begin(&context, run.clone(), earlier);
    let outer = request.clone();
    let result = inner
        .oneshot(request)
        .await
        .map_err(|error| Error::from(error.into()));
    // A layer may have answered for a run that was aborted.
    let result = context.aborted().map_or(result, |abort| Err(abort.clone()));
    let end = match &result {
        Ok(response) => RunEnd::new(checkpoint_of(response, &outer), context.state().snapshot()),
        // The journal has failed or refuses this process, so the end could not be written either.
        Err(error) if error.downcast_ref::<JournalError>().is_some() => return result,
        Err(error) => RunEnd::Failed(error.clone()),
    };
    journal.end(&run, &end).await?;
    result
}

/// Returns the checkpoint of a run, also if a layer has answered for it.
fn checkpoint_of(response: &AgentResponse, request: &AgentRequest) -> Checkpoint {
    let context = request.context();
    // A layer has replaced the interrupts by a response of its own. The calls still wait, so the run does.
    if response.interrupts().is_empty() && !context.interrupts().is_empty() {
        return request.checkpoint();
    }
    let mut response = response.clone();
    request.mark(&mut response, None, Origin::Service);
    response.checkpoint_in(context)
}
