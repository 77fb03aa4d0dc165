//! Which of several agents a conversation waits for.

use super::Agent;
use super::step::{self, Step};
use crate::context::{RunContext, Turn};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Messages;

/// The agent that goes on with the conversation of one that resumes, if it is one of these.
///
/// A call belongs to the agent that made it. Messages alone do not say which that was, so a
/// conversation with open calls is not gone on with by a guess.
///
/// # Errors
///
/// When calls are open and it is not known whose they are.
pub(super) fn whose_turn(
    context: &RunContext,
    agents: &[Agent],
    messages: &Messages,
) -> Result<Option<usize>> {
    let why = match context.turn() {
        Turn::Of(name) => match agents.iter().position(|agent| agent.name() == &*name) {
            Some(index) => return Ok(Some(index)),
            None => format!("they are those of an agent `{name}`, which it has not"),
        },
        Turn::Own => return Ok(None),
        Turn::Others(path) => format!("they are those of agent `{path}`"),
        Turn::Unknown if agents.is_empty() => return Ok(None),
        Turn::Unknown => "the messages do not say which of its agents has made them: resume \
             with the run's `Checkpoint`, or add the user's next message"
            .to_owned(),
    };
    match step::next(messages) {
        Step::Tools(open) => {
            let calls: Vec<_> =
                open.iter().map(|call| format!("`{}` ({})", call.name, call.id)).collect();
            let (calls, agent) = (calls.join(", "), context.agent());
            let message = format!("agent `{agent}` cannot go on with open calls {calls}: {why}");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        _ => Ok(None),
    }
}
