//! Which of several agents a resumed conversation waits for.

use super::Agent;
use crate::agent::AgentResponse;
use crate::context::{Conversation, RunContext};
use crate::message::Messages;

/// Where an agent stands that is called with this context.
pub(super) fn path(context: &RunContext, agent: &Agent) -> String {
    format!("{}/{}", context.call_path(), agent.name())
}

/// Notes an agent that waits and whose conversation is its caller's.
pub(super) fn note(context: &RunContext, agent: &Agent, response: &AgentResponse) {
    if !response.pending().is_empty() {
        let (messages, told) = (Messages::new(), response.messages().len());
        context.suspend(path(context, agent), Conversation { messages, told, done: false });
    }
}

/// The agent that was noted at the end of these messages.
pub(super) fn noted(context: &RunContext, agents: &[Agent], messages: &Messages) -> Option<usize> {
    agents.iter().position(|agent| {
        let noted = context.take_suspended(&path(context, agent));
        noted.is_some_and(|noted| noted.told == messages.len())
    })
}
