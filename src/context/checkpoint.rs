use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CALLS, Conversation, Record, RunContext, Suspended};
use crate::error::Interrupt;
use crate::message::Messages;

/// All that a conversation needs to [go on](crate::AgentRequest::resume), in this process or
/// another, but for the session's state, which is kept apart.
///
/// There is one for every run, however it ended: [of the response](crate::AgentResponse::checkpoint),
/// [of the error](crate::Error::checkpoint), and
/// [of a stream](crate::RunStream::checkpoint) that is not read to its end. It has what was said,
/// what agents that work for others have said among themselves, and whose tool calls are open, so
/// that the run that resumes does not do again what was done.
///
/// It serialises. Keep it where the one who answers can neither read nor change it: it has the
/// conversation's [private state](crate::RunContext::private_state), and what stands in it was
/// said and asked as far as the next run knows.
///
/// # What is done how often
///
/// Within one line of checkpoints, each resumed once, a tool runs at most once for each of its
/// calls: a call that was begun and has no answer, because the run failed or was dropped around
/// it, is not made again, and the model reads so. Tools that
/// [may be repeated](crate::Effect), and agents as tools, are called again. A model call without
/// an answer is made again.
///
/// Resuming one checkpoint twice does twice what comes behind it. Keep the latest one of each
/// conversation, and refuse to resume any other: [`turn`](Self::turn) tells them apart.
///
/// ```
/// use serde_json::{Value, json};
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::{Agent, AgentRequest, Checkpoint, Resolution, Tool};
/// use tower_agent::middleware::approval::Approval;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let model = ScriptedModel::new([Turn::tool("wipe", json!({ "value": "disk" })), Turn::from_text("Wiped.")]);
/// let agent = Agent::builder(model)
///     .tool(Tool::function("wipe", "Wipes.", |_: String| "done"))
///     .on_tool(Approval::of_tools(["wipe"]))
///     .build()?;
///
/// let paused = agent.run("Wipe the disk.").await?;
/// let saved = serde_json::to_string(&paused.checkpoint())?;
///
/// let checkpoint: Checkpoint = serde_json::from_str(&saved)?;
/// let yes = checkpoint
///     .interrupts
///     .iter()
///     .map(|interrupts| Resolution::resolved(&interrupts.id, json!({ "approved": true })))
///     .collect::<Vec<_>>();
/// let response = agent.run(AgentRequest::resume(checkpoint).with_resolutions(yes)).await?;
/// assert_eq!(response.text(), "Wiped.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The whole conversation.
    pub messages: Messages,
    /// What the run waits for. Empty for a run that does not wait.
    pub interrupts: Vec<Interrupt>,
    /// How many runs the conversation has had: 0 before the first.
    pub turn: u64,
    /// What agents have said among themselves, and whose turn it is.
    #[serde(skip_serializing_if = "Suspended::is_empty")]
    pub(crate) suspended: Suspended,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) private_state: Map<String, Value>,
}

impl Checkpoint {
    /// A conversation that has had no run.
    #[must_use]
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// The same conversation with other messages, such as those before one that the user has
    /// edited. Nothing is waited for any more.
    #[must_use]
    pub fn with_messages(self, messages: impl Into<Messages>) -> Self {
        let (turn, mut private_state) = (self.turn, self.private_state);
        private_state.retain(|key, _| !key.starts_with(CALLS));
        Self { turn, private_state, ..Self::new(messages) }
    }

    /// What has been done so far in a run.
    pub(crate) fn of(record: &Record, context: &RunContext) -> Self {
        let Conversation { messages, suspended } = record.save();
        let mut checkpoint = Self { messages, suspended, ..Self::default() };
        checkpoint.turn = record.turn();
        checkpoint.interrupts = context.interrupts();
        if context.is_outermost() {
            checkpoint.private_state = context.private_state().snapshot();
        }
        checkpoint
    }
}

impl fmt::Debug for Checkpoint {
    /// Leaves out the private state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("messages", &self.messages)
            .field("interrupts", &self.interrupts)
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}
