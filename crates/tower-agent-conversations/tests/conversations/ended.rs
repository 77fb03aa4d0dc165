//! A run of a stored conversation that is ended: by its token, by who waits no longer, by tower's
//! limit of time. How it loses its lease is in `lost`.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::StreamExt;
use test_support::ended::{Ends, MODEL, World, check};
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt, service_fn};
use tower_agent::agent::BoxAgent;
use tower_agent::{Agent, AgentRequest, AgentResponse, Error, ErrorKind, Request, Result};
use tower_agent_conversations::{
    ClientInput, MemoryConversations, SessionLayer, SessionService, ThreadRun, Threads,
};

use crate::{Plain, key};

const WAYS: [Ends; 3] = [Ends::Token, Ends::Drop, Ends::Limit];

fn agent(world: &World) -> Agent {
    let model = world.model(|_| ControlFlow::Continue(MODEL));
    world.agent(model).build().unwrap()
}

/// A store in which nobody waits for the lease of a run that is gone.
fn store() -> EndedLeases<Arc<MemoryConversations>> {
    EndedLeases(Arc::default())
}

#[tokio::test(start_paused = true)]
async fn in_a_session() {
    let begin = async |world: &World| {
        let sessions = SessionLayer::new(store()).layer(agent(world));
        (sessions, key().request("Go."))
    };
    let again = async |sessions: &SessionService<Agent>, _| {
        let request = key().request("Go on.");
        Some(sessions.clone().oneshot(request).await)
    };
    check("session", &WAYS, true, begin, again).await;
}

/// What a server does with a message of its client.
async fn serve(agent: Agent, threads: Threads, request: AgentRequest) -> Result<AgentResponse> {
    let run = request.context().run_id().to_owned();
    let words = [Plain::user(&format!("message of {run}"), "Go.")];
    let begun = threads.begin(key(), ClientInput::new(&*run, &words)).await;
    let mut begun = begun.map_err(|refusal| Error::from_source(ErrorKind::Conflict, refusal))?;
    let token = request.context().cancellation().clone();
    begun.request = begun.request.with_cancellation(token);
    let mut run = ThreadRun::new(agent, begun);
    while let Some(event) = run.next().await {
        drop(event.map_err(Error::from)?);
    }
    run.response().await
}

#[tokio::test(start_paused = true)]
async fn in_a_thread() {
    let begin = async |world: &World| {
        let agent = agent(world);
        let threads = Threads::new(store()).allow_partial_history();
        let served = service_fn(move |request| serve(agent.clone(), threads.clone(), request));
        (BoxAgent::new(served), AgentRequest::new("Go."))
    };
    let again = async |served: &BoxAgent, _| {
        Some(served.clone().oneshot(AgentRequest::new("Go on.")).await)
    };
    check("thread", &WAYS, true, begin, again).await;
}
