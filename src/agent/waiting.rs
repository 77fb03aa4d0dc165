//! Finds the agent that a conversation waits for.

use super::agent::Agent;
use crate::context::{RunContext, WhoseTurn};
use crate::conversation::{NextStep, next_step};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Messages;

/// Returns the agent among these that continues a resumed conversation.
///
/// A call belongs to the agent that made it. Messages alone do not say which agent that was, so a
/// conversation with open calls is not continued by guessing.
///
/// # Errors
///
/// Fails if calls are open and their owner is unknown.
pub(super) fn whose_turn(
    context: &RunContext,
    agents: &[Agent],
    messages: &Messages,
) -> Result<Option<usize>> {
    let why = match context.place().turn() {
        WhoseTurn::Of(name) => match agents.iter().position(|agent| agent.name() == &*name) {
            Some(index) => return Ok(Some(index)),
            None => format!("they belong to agent `{name}`, which is not among its agents"),
        },
        WhoseTurn::Own => return Ok(None),
        WhoseTurn::Others(path) => format!("they belong to agent `{path}`"),
        WhoseTurn::Unknown if agents.is_empty() => return Ok(None),
        WhoseTurn::Unknown => "the messages do not say which of its agents made them; resume with \
             the run's `Checkpoint`, or add the user's next message"
            .to_owned(),
    };
    match next_step(messages) {
        NextStep::Tools(open) => {
            let calls: Vec<_> = open
                .calls()
                .map(|(_, call)| format!("`{}` ({})", call.name, call.id))
                .collect();
            let calls = calls.join(", ");
            let agent = context.agent();
            let message = format!("agent `{agent}` cannot continue with open calls {calls}: {why}");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        NextStep::Model | NextStep::Done => Ok(None),
    }
}
