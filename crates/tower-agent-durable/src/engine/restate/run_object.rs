use std::collections::HashMap;
use std::sync::Arc;

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::{
    ContextClient, ContextSideEffects, HandlerError, HandlerResult, Json, ObjectContext, RunFuture,
};
use tokio::sync::Semaphore;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_agent::callback::Bundle;
use tower_agent::{Action, AgentRequest, AgentResponse, Callback, Error, Request};

use super::engine::Engine;
use super::error::RestateError;
use super::wire::{Answer, JOURNAL, Refused, Settle, Submit};
use crate::journal::Steps;

pub(super) type Agents = HashMap<Arc<str>, BoxCloneSyncService<AgentRequest, AgentResponse, Error>>;

/// Makes runs: its key is the run's id, so that each is made by one worker at a time.
pub(super) struct RunObject {
    pub(super) engine: Engine,
    pub(super) agents: Agents,
    /// How many more runs it makes at once.
    pub(super) free: Semaphore,
}

#[restate_sdk::object(
    name = "TowerAgentRun",
    client_visibility = "pub(super)",
    lazy_state,
    // The server would stop a worker in the middle of a long step.
    inactivity_timeout = "365 days",
    abort_timeout = "365 days",
    ingress_private,
    // The server would pause it, and nobody would know.
    invocation_retry_policy(
        initial_interval = "100ms",
        max_interval = "10s",
        max_attempts = 1000000
    )
)]
impl RunObject {
    #[handler]
    async fn make(
        &self,
        context: ObjectContext<'_>,
        Json(submit): Json<Submit>,
    ) -> HandlerResult<()> {
        // It is no journal of steps: only whether the run was made is kept here.
        let outcome = context
            .run(|| self.run(submit))
            .name("run")
            .await?
            .into_inner();
        let settle = Settle {
            invocation: context.invocation_id().to_owned(),
            outcome,
        };
        let target = RequestTarget::object(JOURNAL, context.key(), "settle");
        let settled = context.request::<Json<Settle>, Json<Answer<()>>>(target, Json(settle));
        settled.call().await?;
        Ok(())
    }
}

impl RunObject {
    async fn run(&self, submit: Submit) -> HandlerResult<Json<Answer<()>>> {
        let Some(agent) = self.agents.get(&submit.agent) else {
            return Ok(Json(Err(Refused::UnknownAgent {
                agent: submit.agent,
            })));
        };
        // The run that waits here would take what the steps of the others need.
        let _permit = self
            .free
            .try_acquire()
            .map_err(|_| "the worker makes enough runs")?;
        let request = AgentRequest::from(submit.request);
        let request = request.with_callbacks(IsJournaled(self.engine.clone()));
        let Err(error) = agent.clone().oneshot(request).await else {
            return Ok(Json(Ok(())));
        };
        match Refused::of(error) {
            Ok(refused) => Ok(Json(Err(refused))),
            Err(error) => Err(HandlerError::from(error)),
        }
    }
}

/// Refuses an agent that another journal has, or none.
struct IsJournaled(Engine);

impl From<IsJournaled> for Bundle {
    fn from(callback: IsJournaled) -> Self {
        Self::new().on_agent(callback)
    }
}

impl Callback<AgentRequest> for IsJournaled {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>, Error> {
        let context = request.context();
        if context.path().contains('/') {
            return Ok(Action::Continue);
        }
        let run = Steps::of(context, String::new).map(|steps| steps.run.clone());
        let is_here = match &run {
            Ok(run) => self.0.epoch_of(&run.id).await? == Some(run.epoch),
            Err(_) => false,
        };
        match is_here {
            true => Ok(Action::Continue),
            false => Err(RestateError::OtherJournal {
                run: context.run_id().into(),
            }
            .into()),
        }
    }

    fn is_guard(&self) -> bool {
        true
    }
}
