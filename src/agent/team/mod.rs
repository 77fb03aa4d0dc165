//! Teams of agents.

mod builder;
mod parallel;
mod sequence;

use std::sync::Arc;

pub use self::builder::TeamBuilder;

use super::Agent;
use super::whole::make_whole;
use crate::call::{BoxCallFuture, Request, settle};
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::panic::catch;
use crate::run::{AgentRequest, AgentResponse, BoxAgent};

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

/// The plan at the bottom of a team's stack.
fn service(config: Config) -> BoxAgent {
    let config = Arc::new(config);
    BoxAgent::ours(move |request| call(config.clone(), request))
}

#[inline(never)]
fn call(team: Arc<Config>, mut request: AgentRequest) -> BoxCallFuture<AgentRequest> {
    BoxCallFuture::new(async move {
        // Once for all its members.
        let added = make_whole(&mut request);
        if let Some(emitter) = request.context().emitter() {
            let asked = request.messages();
            emitter.begin(&request.context().begin(asked), asked.len()).await;
            emitter.tell_answers(&added).await;
        }
        let result = match team.plan {
            Plan::InTurn { rounds } => sequence::run(&team, rounds, &request).await,
            Plan::SideBySide => parallel::run(&team, &request).await,
        };
        result.map_err(|error| settle::<AgentRequest>(request.context(), None, error))
    })
}
