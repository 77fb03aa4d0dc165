use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Service, ServiceExt};
use tower_agent::call::{CallService, Origin};
use tower_agent::{AgentRequest, AgentResponse, Checkpoint, Error, Request, Result};
use tower_layer::Layer;

use super::error::JournalError;
use super::input::Input;
use super::journal::Journal;
use super::run_end::RunEnd;
use super::steps::Steps;
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
        Steps::of(&context, || format!("agent `{}`", context.path()))?;
        return inner
            .oneshot(request)
            .await
            .map_err(|error| Error::from(error.into()));
    }
    let open = OpenCalls::of(&context);
    if let Some(open) = &open {
        open.note_journal().await?;
    }
    let run = journal.start(&Input::new(&request)?).await?;
    if let Some(open) = &open {
        open.take_over().await;
    }
    Steps::begin(&context, run.clone());
    let asked = request.clone();
    let result = inner
        .oneshot(request)
        .await
        .map_err(|error| Error::from(error.into()));
    // A layer may have answered for a run that was aborted.
    let result = context.aborted().map_or(result, |abort| Err(abort.clone()));
    let end = match &result {
        Ok(response) => RunEnd::new(left(response, &asked), context.state().snapshot()),
        // What has stopped the run could not be written either.
        Err(error) if error.downcast_ref::<JournalError>().is_some() => return result,
        Err(error) => RunEnd::Failed(error.clone()),
    };
    journal.end(&run, &end).await?;
    result
}

/// Returns what a run has left, also if a layer has answered for it.
fn left(response: &AgentResponse, asked: &AgentRequest) -> Checkpoint {
    let context = asked.context();
    if response.interrupts().is_empty() && !context.interrupts().is_empty() {
        return asked.checkpoint();
    }
    let mut response = response.clone();
    asked.mark(&mut response, None, Origin::Service);
    response.checkpoint_in(context)
}
