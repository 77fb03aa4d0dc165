use std::collections::HashMap;
use std::sync::Arc;

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::{
    ContextClient, ContextSideEffects, HandlerResult, Json, ObjectContext, RunFuture,
};
use tokio::sync::Semaphore;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_agent::callback::Bundle;
use tower_agent::{Action, AgentRequest, AgentResponse, Callback, Error, Request};

use crate::engine::Engine;
use crate::error::RestateError;
use crate::wire::{Answer, Failure, JOURNAL, Process, Settle, Submit};
use tower_agent_durable::journal::{OpenRun, RunKey};

pub(crate) type Agents = HashMap<Arc<str>, BoxCloneSyncService<AgentRequest, AgentResponse, Error>>;

/// Makes runs: its key is the run's id, so that each is made by one worker at a time.
pub(crate) struct RunObject {
    pub(crate) engine: Engine,
    pub(crate) agents: Agents,
    /// The number of runs that may still begin.
    pub(crate) free: Semaphore,
}

#[restate_sdk::object(
    name = "TowerAgentRun",
    client_visibility = "pub(crate)",
    lazy_state,
    // The server would stop a worker in the middle of a long step.
    inactivity_timeout = "365 days",
    abort_timeout = "365 days",
    ingress_private,
    // The engine's copy of the request is deleted with it.
    journal_retention = "0s",
    // The server would pause it in the end, and the run would stop unnoticed.
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
        // One step of Restate for the whole run: the journal's object stores the steps inside.
        let outcome = context
            .run(|| self.run(RunKey::from_text(context.key()), submit))
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
    async fn run(&self, key: RunKey, submit: Submit) -> HandlerResult<Json<Result<(), Failure>>> {
        let Some(agent) = self.agents.get(&submit.agent) else {
            let agent = submit.agent;
            let refused = RestateError::UnknownAgent { agent };
            return Ok(Json(Err(Failure::Refused(refused))));
        };
        // Does not wait: a waiting run would occupy an invocation that the steps of other runs
        // need.
        let _permit = self
            .free
            .try_acquire()
            .map_err(|_| "the worker makes enough runs")?;
        let request = key.request(AgentRequest::from(submit.request));
        let request = request.with_callbacks(IsJournaled(self.engine.clone()));
        let Err(error) = agent.clone().oneshot(request).await else {
            return Ok(Json(Ok(())));
        };
        // Some errors are no outcome of the run, but reasons for the server to try it again.
        let failure = Failure::of(error)?;
        Ok(Json(Err(failure)))
    }
}

/// Refuses an agent without a journal, or with another journal than the engine.
struct IsJournaled(Engine);

impl From<IsJournaled> for Bundle {
    fn from(callback: IsJournaled) -> Self {
        Self::new().on_agent(callback)
    }
}

impl Callback<AgentRequest> for IsJournaled {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>, Error> {
        let context = request.context();
        // Only the outermost agent: those inside share its journal.
        if context.path().contains('/') {
            return Ok(Action::Continue);
        }
        let is_here = match OpenRun::of(context) {
            // Two journals may have a run of one id, but the process of this start is only in one.
            Some(run) => self.0.process_of(&run.key()).await? == Some(Process::of(&run)),
            None => false,
        };
        if !is_here {
            let run = context.run_id().into();
            return Err(RestateError::OtherJournal { run }.into());
        }
        Ok(Action::Continue)
    }

    fn is_guard(&self) -> bool {
        true
    }
}
