use crate::agent::agent::Agent;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::panic::catch;
use crate::run::AgentResponse;

/// The members of a team, and how they are called.
pub(super) struct Config {
    pub(super) plan: Plan,
    pub(super) members: Vec<Agent>,
    pub(super) until: Option<Until>,
}

/// When the members are called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    /// In turn, for this many rounds.
    InTurn { rounds: u32 },
    /// In parallel.
    SideBySide,
}

pub(super) type Until = Box<dyn Fn(&AgentResponse) -> bool + Send + Sync>;

impl Config {
    /// Returns whether a member that has finished ends the team.
    pub(super) fn is_over(&self, member: &RunContext, response: &AgentResponse) -> Result<bool> {
        if member.escalated() {
            return Ok(true);
        }
        let Some(until) = &self.until else {
            return Ok(false);
        };
        // The caller's own code: its panic fails the team instead of unwinding through it.
        catch(|| until(response))
            .map_err(|panic| Error::new(ErrorKind::Callback, format!("`until` panicked: {panic}")))
    }
}
