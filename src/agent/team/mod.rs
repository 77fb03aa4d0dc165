//! Teams of agents.

mod builder;
mod parallel;
mod sequence;

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::Service;

pub use self::builder::TeamBuilder;

use super::Agent;
use super::whole::make_whole;
use crate::call::Request;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::panic::catch;
use crate::run::{AgentRequest, AgentResponse};

/// The innermost service of a team's stack.
#[derive(Clone)]
struct Team(Arc<Config>);

struct Config {
    plan: Plan,
    members: Vec<Agent>,
    until: Option<Until>,
}

/// When the members are called.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// In turn, for this many rounds.
    InTurn { rounds: u32 },
    /// In parallel.
    SideBySide,
}

type Until = Box<dyn Fn(&AgentResponse) -> bool + Send + Sync>;

impl Config {
    /// Returns whether a member that has finished ends the team.
    fn is_over(&self, member: &RunContext, response: &AgentResponse) -> Result<bool> {
        if member.escalated() {
            return Ok(true);
        }
        let Some(until) = &self.until else { return Ok(false) };
        catch(|| until(response))
            .map_err(|panic| Error::new(ErrorKind::Callback, format!("`until` panicked: {panic}")))
    }
}

impl Service<AgentRequest> for Team {
    type Response = AgentResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<AgentResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: AgentRequest) -> Self::Future {
        let team = self.0.clone();
        Box::pin(async move {
            // Once for all members.
            let added = make_whole(&mut request);
            if let Some(emitter) = request.context().emitter() {
                let asked = request.messages();
                emitter.begin(&request.context().begin(asked), asked.len()).await;
                emitter.tell_answers(&added).await;
            }
            match team.plan {
                Plan::InTurn { rounds } => sequence::run(&team, rounds, &request).await,
                Plan::SideBySide => parallel::run(&team, &request).await,
            }
        })
    }
}
