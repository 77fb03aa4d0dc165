use std::fmt;
use std::task::{Context, Poll};

use tower::{Service, ServiceExt};
use tower_agent::agent::AgentService;
use tower_agent::call::{Origin, Request};
use tower_agent::error::{BoxError, Error, ErrorKind, Result};
use tower_agent::message::Messages;
use tower_agent::{AgentRequest, AgentResponse, Checkpoint};

use super::config::SessionConfig;
use super::future::ResponseFuture;
use super::mark::{self, Arrival, SessionMark};
use super::running::{Entered, Running};
use crate::accepted::tell_with_agent;
use crate::key::ConversationKey;

/// An agent whose conversations are kept; created by [`SessionLayer`](super::SessionLayer).
#[derive(Clone)]
pub struct SessionService<A> {
    agent: A,
    config: SessionConfig,
}

impl<A> SessionService<A> {
    pub(super) fn new(agent: A, config: SessionConfig) -> Self {
        Self { agent, config }
    }
}

impl<A: AgentService> Service<AgentRequest> for SessionService<A> {
    type Response = AgentResponse;
    type Error = Error;
    type Future = ResponseFuture;

    /// Always ready: a call waits for its agent inside.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AgentRequest) -> ResponseFuture {
        let agent = self.agent.clone();
        let config = self.config.clone();
        ResponseFuture(Box::pin(async move {
            match mark::enter(request.context())? {
                Some((entry, mark)) => run(agent, config, request, entry, mark).await,
                None => agent.oneshot(request).await.map_err(lift),
            }
        }))
    }
}

async fn run<A: AgentService>(
    agent: A,
    config: SessionConfig,
    mut request: AgentRequest,
    entry: Arrival,
    mut mark: SessionMark,
) -> Result<AgentResponse> {
    let Some(key) = ConversationKey::of(request.context()).cloned() else {
        let message = "the request names no session: create it with `ConversationKey::request`";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    };
    if entry == Arrival::New && request.checkpoint().head.turn > 1 {
        let message = "the request resumes a checkpoint, but its session has its own: send only \
                       what is new";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    // The failed attempt has stored the messages; they come back with the conversation.
    if entry == Arrival::Again {
        *request.messages_mut() = Messages::new();
    }
    let (mut running, request) = match Running::begin(&config, key, request, entry).await? {
        Entered::Run(running, request) => (running, request),
        Entered::Answered(response) => {
            mark.ended();
            return Ok(response);
        }
    };
    mark.stored();
    let request = tell_with_agent(request);
    // The clone shares the run's conversation, from which the progress is read if the call gives
    // none.
    let outer = request.clone();
    let call = async { agent.oneshot(request).await.map_err(lift) };
    let lost = running.lease().lost().clone();
    let result = match lost.run_until_cancelled(call).await {
        Some(result) => result,
        // Two runs of one session would answer the same message twice. Dropping the call stops this
        // one.
        None => {
            let message = "the session was deleted, or another run has taken it because this one \
                           could not renew its lease; its progress is in the error's checkpoint, \
                           and not stored";
            let lost = Error::new(ErrorKind::Conflict, message);
            running.give_up();
            return Err(lost.with_checkpoint(outer.checkpoint()));
        }
    };
    let (result, checkpoint) = match result {
        Ok(response) => {
            let (response, checkpoint) = with_conversation(response, &outer);
            mark.ended();
            (Ok(response), checkpoint)
        }
        Err(error) => {
            // A layer inside may have replaced the agent's error.
            let checkpoint = error
                .checkpoint()
                .cloned()
                .unwrap_or_else(|| outer.checkpoint());
            (Err(error.with_checkpoint(checkpoint.clone())), checkpoint)
        }
    };
    running.finish(result, checkpoint).await
}

/// Returns a response as part of its conversation, also if a layer has created it, and the
/// checkpoint of that.
fn with_conversation(
    mut response: AgentResponse,
    request: &AgentRequest,
) -> (AgentResponse, Checkpoint) {
    request.mark(&mut response, None, Origin::Service);
    let checkpoint = response.checkpoint();
    let progress = request.checkpoint();
    // A response that a layer has created may have an earlier turn. The session's turn must not go
    // back, or the next request would continue from before this run.
    if checkpoint.head.turn < progress.head.turn {
        return (response, progress.with_messages(checkpoint.messages));
    }
    (response, checkpoint)
}

fn lift(error: impl Into<BoxError>) -> Error {
    Error::from(error.into())
}

impl<A> fmt::Debug for SessionService<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionService").finish_non_exhaustive()
    }
}
