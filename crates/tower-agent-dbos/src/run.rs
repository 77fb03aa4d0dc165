//! The work of a worker on one request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tower_agent::agent::SavedRequest;
use tower_agent::callback::Bundle;
use tower_agent::stream::Event;
use tower_agent::{Action, Agent, AgentRequest, AgentResponse, Callback, Error, Request, Result};

use crate::engine::{Engine, run_of};
use crate::error::DbosError;
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{JournalError, OpenRun, RunEnd};

/// The time that a run waits for a journal that cannot be reached.
const WAIT: Duration = Duration::from_secs(1);

/// Gets the events of runs.
pub(crate) type OnEvent = Arc<dyn Fn(Arc<str>, Event) -> BoxFuture<'static, ()> + Send + Sync>;

/// Starts or continues the run, and returns its end. An error that is not the agent's leaves the
/// request open.
pub(crate) async fn make(
    engine: Engine,
    worker: String,
    agent: Agent,
    events: Option<OnEvent>,
    request: SavedRequest,
) -> dbos::Result<RunEnd, Error> {
    let workflow = dbos::workflow_id().unwrap_or_default();
    let here = Here {
        engine: engine.clone(),
        workflow: workflow.clone(),
    };
    let request = run_of(&workflow).request(AgentRequest::from(request));
    let request = request.with_callbacks(Bundle::new().on_agent(here));
    let result = match &events {
        None => agent.run(request).await,
        Some(events) => stream(&agent, request, events).await,
    };
    let error = match result {
        Ok(response) => {
            return Ok(RunEnd::new(
                response.checkpoint(),
                response.state().snapshot(),
            ));
        }
        Err(error) => error,
    };
    let open = match error.downcast_ref() {
        // The process that has it now reports its end.
        Some(JournalError::TakenOver { .. }) => Open::Elsewhere,
        Some(JournalError::Cancelled { .. }) => Open::Cancelled,
        Some(JournalError::Store(StoreError::Database(_))) => Open::Again,
        _ => return Err(dbos::Error::Application(error)),
    };
    // To return before the database knows would lose the request: DBOS would take it for
    // interrupted, and nobody would make it until this worker starts again.
    while let Err(error) = leave(&engine, &open, agent.name(), &worker, &workflow).await {
        tracing::warn!(workflow, error = %error.to_string().escape_debug(), "waiting for the database");
        tokio::time::sleep(WAIT).await;
    }
    Err(dbos::Error::Interrupted {
        workflow_id: workflow,
    })
}

/// The reason why a request is left without an end.
enum Open {
    Elsewhere,
    Cancelled,
    /// The journal could not be reached. Not made again here: another may have made it meanwhile.
    Again,
}

async fn leave(
    engine: &Engine,
    open: &Open,
    agent: &str,
    worker: &str,
    workflow: &str,
) -> Result<(), DbosError> {
    match open {
        Open::Elsewhere => Ok(()),
        Open::Cancelled => engine.cancel_both(workflow).await,
        Open::Again => {
            tokio::time::sleep(WAIT).await;
            engine.give_back(agent, worker, workflow).await
        }
    }
}

async fn stream(agent: &Agent, request: AgentRequest, events: &OnEvent) -> Result<AgentResponse> {
    let run: Arc<str> = request.context().run_id().into();
    let mut stream = agent.stream(request);
    while let Some(event) = stream.next().await {
        events(run.clone(), event).await;
    }
    stream.response().await
}

/// Refuses a run before its first call unless it is in the engine's journal and not cancelled.
struct Here {
    engine: Engine,
    workflow: String,
}

impl Callback<AgentRequest> for Here {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        let context = request.context();
        // The run was checked with its outermost agent.
        if context.path().contains('/') {
            return Ok(Action::Continue);
        }
        let run = OpenRun::of(context).ok_or_else(|| DbosError::OtherJournal {
            run: context.run_id().into(),
        })?;
        let known = self.engine.runs().get(run.key()).await;
        match known {
            Ok(known) if known.epoch == run.epoch => {}
            // Another worker has started the run since this one did.
            Ok(known) if known.epoch > run.epoch => {
                Err(JournalError::TakenOver {
                    run: run.id.clone(),
                })?;
            }
            // The agent's journal has a run that the engine's has not, or not so far: it is another
            // database, in which no other worker would find the run.
            Ok(_) | Err(JournalError::UnknownRun { .. }) => {
                Err(DbosError::OtherJournal {
                    run: run.id.clone(),
                })?;
            }
            Err(error) => Err(error)?,
        }
        // The journal did not know the run when it was cancelled before its first start, so DBOS
        // has it alone.
        if self.engine.is_cancelled(&self.workflow).await? {
            Err(JournalError::Cancelled {
                run: run.id.clone(),
            })?;
        }
        Ok(Action::Continue)
    }

    fn is_guard(&self) -> bool {
        true
    }
}
