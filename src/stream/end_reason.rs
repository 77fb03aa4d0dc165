use std::sync::Arc;

use serde::Serialize;

use crate::error::Interrupt;
use crate::message::NoAnswer;

/// The reason for the end of an agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// The model gave its final answer.
    Completed,
    /// `stop_when` returned `true`; or, for a team, `until` did or [an agent
    /// escalated](crate::RunContext::escalate).
    StopCondition,
    /// A callback returned [`Error::end_invocation`](crate::Error::end_invocation).
    EndedByCallback,
    /// The agent waits on these interrupts; a new run can [resume](crate::AgentRequest::resume) it.
    Interrupted(Arc<[Interrupt]>),
    /// A sub-agent has handed the conversation back, to the agent that has it or to another
    /// sub-agent of that one.
    Transferred,
    /// The limit of model calls was reached.
    IterationLimit,
    /// The last response of the model, or of a member of a team, is no answer; see
    /// [`AtNoAnswer`](crate::agent::AtNoAnswer).
    NoAnswer(NoAnswer),
}
