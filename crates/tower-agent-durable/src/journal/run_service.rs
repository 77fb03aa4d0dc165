use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tower::{Service, ServiceExt};
use tower_agent::agent::SavedRequest;
use tower_agent::call::{CallService, Origin};
use tower_agent::{AgentRequest, AgentResponse, Checkpoint, Error, Request, Result};
use tower_layer::Layer;

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::journal::{Input, Journal};
use super::run_end::RunEnd;
use super::steps::Steps;
use crate::error::StoreError;
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
    let run = journal.start(&input(&request)?).await?;
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

/// Returns the request as a journal starts a run with it.
pub(crate) fn input(request: &AgentRequest) -> Result<Input, JournalError> {
    let saved = SavedRequest::from(request);
    let mut fingerprint = Fingerprint::default();
    let mut data = serde_json::to_value(&saved).map_err(StoreError::data)?;
    // The same request can come through another stream, whose messages have other ids.
    if let Some(Value::Array(messages)) = data.pointer_mut("/checkpoint/messages") {
        for message in messages.iter_mut().filter_map(Value::as_object_mut) {
            message.remove("id");
        }
    }
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
    let context = request.context();
    let is_retried =
        Steps::of(context, String::new).is_ok_and(|it| *it.run.id == *context.run_id());
    Ok(Input {
        agent: context.agent().into(),
        request: saved,
        fingerprint,
        is_retried,
    })
}

/// Returns the parts of what is stored. Of another version it is still the same.
fn parts(stored: &Value) -> impl Iterator<Item = (&String, &Value)> {
    stored
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(part, _)| *part != "version")
}
