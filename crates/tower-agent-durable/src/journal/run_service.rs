use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tower::{Service, ServiceExt};
use tower_agent::agent::SavedRequest;
use tower_agent::call::CallService;
use tower_agent::{AgentRequest, AgentResponse, Error, Request, Result};
use tower_layer::Layer;

use super::steps::Steps;
use super::{Fingerprint, Input, Journal, JournalError, RunEnd};
use crate::StoreError;
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
        RunService { inner, journal: self.0.clone() }
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
        return inner.oneshot(request).await.map_err(|error| Error::from(error.into()));
    }
    let open = OpenCalls::of(&context);
    if let Some(open) = &open {
        open.note_journal().await?;
    }
    let run = journal.start(&input(&request)?).await?;
    if let Some(open) = &open {
        open.take_over().await;
    }
    Steps::begin(&context, run.clone());
    let result = inner.oneshot(request).await.map_err(|error| Error::from(error.into()));
    let end = match &result {
        Ok(response) => RunEnd::new(response.checkpoint_in(&context), context.state().snapshot()),
        // What has stopped the run could not be written either.
        Err(error) if error.downcast_ref::<JournalError>().is_some() => return result,
        Err(error) => RunEnd::Failed(error.clone()),
    };
    journal.end(&run, &end).await?;
    result
}

/// Returns the request as a journal starts a run with it.
pub(crate) fn input(request: &AgentRequest) -> Result<Input, JournalError> {
    let saved = SavedRequest::from(request);
    let mut fingerprint = Fingerprint::default();
    let data = serde_json::to_value(&saved).map_err(StoreError::data)?;
    for (part, value) in parts(&data) {
        match &**part {
            "checkpoint" => {
                for (part, value) in parts(value) {
                    fingerprint.add(part, value)?;
                }
            }
            part => fingerprint.add(part, value)?,
        }
    }
    Ok(Input { agent: request.context().agent().into(), request: saved, fingerprint })
}

/// Returns the parts of what is stored. Of another version it is still the same.
fn parts(stored: &Value) -> impl Iterator<Item = (&String, &Value)> {
    stored.as_object().into_iter().flatten().filter(|(part, _)| *part != "version")
}
