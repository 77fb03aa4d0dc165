use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::{Service, ServiceExt};
use tower_agent::call::{CallService, Origin};
use tower_agent::{AgentRequest, AgentResponse, Checkpoint, Error, Request, Result};
use tower_layer::Layer;

use super::earlier_steps::EarlierSteps;
use super::error::JournalError;
use super::input::Input;
use super::journal::Journal;
use super::known_messages::LatestMessages;
use super::open_run::OpenRun;
use super::run_end::RunEnd;
use super::steps::Steps;
use tower_agent_conversations::{Accepted, OpenCalls};

/// Journals runs.
#[derive(Clone)]
pub(super) struct DurableRunLayer<J> {
    pub(super) journal: J,
    /// The runs that may still begin.
    pub(super) runs: Arc<Semaphore>,
    pub(super) version: Option<Arc<str>>,
    pub(super) latest: LatestMessages,
}

#[derive(Clone)]
pub(super) struct RunService<S, J> {
    inner: S,
    journal: J,
    runs: Arc<Semaphore>,
    version: Option<Arc<str>>,
    latest: LatestMessages,
}

impl<S, J: Journal> Layer<S> for DurableRunLayer<J> {
    type Service = RunService<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        RunService {
            inner,
            journal: self.journal.clone(),
            runs: self.runs.clone(),
            version: self.version.clone(),
            latest: self.latest.clone(),
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
        Box::pin(make(self.clone(), request))
    }
}

async fn make<S, J>(service: RunService<S, J>, request: AgentRequest) -> Result<AgentResponse>
where
    S: CallService<AgentRequest>,
    J: Journal,
{
    let RunService {
        inner,
        journal,
        runs,
        version,
        latest,
    } = service;
    let context = request.context().clone();
    let is_outermost = !context.path().contains('/');
    if !is_outermost {
        // A sub-agent is part of the run: it has no start and no end of its own. But its calls need
        // the run's steps, so a misplaced journal fails here and not at the first call.
        Steps::of(&context, || format!("agent `{}`", context.path()))?.enter(&context);
        return inner
            .oneshot(request)
            .await
            .map_err(|error| Error::from(error.into()));
    }
    // Before anything is written: who waits here loses nothing.
    let _turn = runs.acquire().await;
    // The session stores that a journal takes part before the journal starts the run: a crash in
    // between then leaves the open calls to the journal, and nobody repeats them unseen.
    let open = OpenCalls::of(&context);
    if let Some(open) = &open {
        open.note_journal().await?;
    }
    let input = Input {
        version,
        ..Input::following(&request, &latest)?
    };
    let run = journal.start(&input).await?;
    if let Some(open) = &open {
        open.take_over().await;
    }
    Accepted::tell(&request);
    let earlier = if run.epoch > 1 {
        EarlierSteps::new(journal.earlier_steps(&run).await?)
    } else {
        EarlierSteps::default()
    };
    Steps::begin(&context, run.clone(), input.known.clone(), earlier);
    let _beats = beats(&journal, &run);
    let outer = request.clone();
    let result = inner
        .oneshot(request)
        .await
        .map_err(|error| Error::from(error.into()));
    // A layer may have answered for a run that was aborted.
    let result = context.aborted().map_or(result, |abort| Err(abort.clone()));
    let end = match &result {
        Ok(response) => RunEnd::new(checkpoint_of(response, &outer), context.state().snapshot()),
        Err(error) => {
            let journal_error = error.downcast_ref::<JournalError>();
            if journal_error.is_some_and(|error| !error.is_of_program()) {
                return result;
            }
            // A program that may not go on with a run that waits or was lost, because an agent has
            // another name or lacks a tool, leaves it to one that may.
            let steps = Steps::find(&context);
            let is_untouched = steps.is_some_and(|steps| !steps.have_begun());
            if is_untouched && journal.give_back(&run).await? {
                if let Some(open) = &open {
                    open.give_back().await;
                }
                return result;
            }
            RunEnd::Failed(error.clone())
        }
    };
    journal.end(&run, &end).await?;
    result
}

/// Lets a run show that it works, until the guard is dropped.
///
/// By a task: a run whose consumer does not read is not polled, and still has its process.
fn beats(journal: &impl Journal, run: &OpenRun) -> Option<DropGuard> {
    let every = journal.heartbeat()?;
    let runtime = Handle::try_current().ok()?;
    let journal = journal.clone();
    let run = run.clone();
    let over = CancellationToken::new();
    let guard = over.clone().drop_guard();
    runtime.spawn(async move {
        while over.run_until_cancelled(sleep(every)).await.is_some() {
            // A database that is away may be back for the next one.
            if let Err(JournalError::TakenOver { .. }) = journal.beat(&run).await {
                return;
            }
        }
    });
    Some(guard)
}

/// Returns the checkpoint of a run, also if a layer has answered for it.
fn checkpoint_of(response: &AgentResponse, request: &AgentRequest) -> Checkpoint {
    let context = request.context();
    // A layer has replaced the interrupts by a response of its own. The calls still wait, so the
    // run does.
    if response.interrupts().is_empty() && !context.interrupts().is_empty() {
        return request.checkpoint();
    }
    let mut response = response.clone();
    request.mark(&mut response, None, Origin::Service);
    response.checkpoint_in(context)
}
