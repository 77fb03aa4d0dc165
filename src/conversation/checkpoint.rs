use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::interrupt::Interrupt;
use super::record::ConversationRecord;
use super::repair::refusal;
use super::saved::{Head, Saved};
use super::saved_with;
use crate::message::{Messages, ToolResult};
use crate::state::{CALLS, GUARDS};
use crate::version::Version;

/// Everything needed to [resume](crate::AgentRequest::resume) a conversation, in this process or
/// another, except the session's state, which is stored separately.
///
/// Every run has one, however it ended: [in the response](crate::AgentResponse::checkpoint), [in
/// the error](crate::Error::checkpoint), or [from a stream](crate::RunStream::checkpoint) that is
/// not read to its end. It contains the messages, the conversations of agents used as tools, and
/// the owners of open tool calls, so that a resumed run does not repeat what was done.
///
/// It serialises, with a version: a later one than this crate knows is an error. A store may keep
/// its parts apart, the [head](CheckpointHead) and each message. Store it where the user can
/// neither read nor change it: it contains the conversation's [private
/// state](crate::RunContext::private_state), and a resumed run trusts its contents.
///
/// # What runs at most once
///
/// If each checkpoint is resumed only once, a tool runs at most once for each of its calls. A call
/// that started and has no result, because the run failed or was dropped, is not repeated, and the
/// model reads so. Tools that [may be repeated](crate::Effect), and agents used as tools, are
/// called again. A model call without a response is repeated.
///
/// Resuming a checkpoint twice repeats everything after it. Keep only the latest checkpoint of a
/// conversation, and refuse to resume any other; [`turn`](CheckpointHead::turn) tells them apart.
///
/// ```
/// use serde_json::{Value, json};
/// use tower_agent::{Agent, AgentRequest, Checkpoint, Resolution, Tool};
/// use tower_agent_middleware::approval::Approval;
/// use tower_agent_test::{ScriptedModel, Turn};
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
/// let interrupts = checkpoint.head.interrupts.iter();
/// let yes = interrupts
///     .map(|interrupt| Resolution::resolved(&interrupt.id, json!({ "approved": true })))
///     .collect::<Vec<_>>();
/// let response = agent.run(AgentRequest::resume(checkpoint).with_resolutions(yes)).await?;
/// assert_eq!(response.text(), "Wiped.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Checkpoint {
    /// The data beside the messages.
    pub head: CheckpointHead,
    /// The whole conversation.
    pub messages: Messages,
}

/// The data of a [`Checkpoint`] beside its messages: small, and rewritten by every run.
///
/// A store that keeps each message once keeps it with the messages, as they are. The version of the
/// saved form is in the head.
///
/// ```
/// use tower_agent::agent::CheckpointHead;
/// use tower_agent::message::Messages;
/// use tower_agent::{Agent, AgentRequest, Checkpoint};
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let model = ScriptedModel::always(Turn::from_text("Hello."));
/// # let agent = Agent::builder(model).build()?;
/// let Checkpoint { head, messages } = agent.run("Hi.").await?.checkpoint();
/// let stored = serde_json::to_string(&head)?;
/// let entries: Vec<_> = messages.iter().cloned().collect();
///
/// let head: CheckpointHead = serde_json::from_str(&stored)?;
/// assert_eq!(head.turn, 1);
/// let checkpoint = Checkpoint { head, messages: Messages::from_iter(entries) };
/// let request = AgentRequest::resume(checkpoint).with_message("And again.");
/// assert_eq!(agent.run(request).await?.messages().len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
pub struct CheckpointHead {
    version: Version<1>,
    /// The interrupts that the run waits on; empty if it was not interrupted.
    pub interrupts: Vec<Interrupt>,
    /// Number of runs of the conversation: 0 before the first.
    pub turn: u64,
    #[serde(default, skip_serializing_if = "Head::is_empty")]
    pub(crate) conversation: Head,
    #[serde(
        default,
        skip_serializing_if = "Map::is_empty",
        serialize_with = "crate::depth::serialize"
    )]
    pub(crate) private_state: Map<String, Value>,
}

impl CheckpointHead {
    /// Returns the head for other messages, as [`Checkpoint::with_messages`] does.
    pub fn for_branch(mut self) -> Self {
        self.interrupts.clear();
        self.conversation = self.conversation.for_branch();
        // Questions about calls belong to the branch that is left.
        self.private_state.retain(|key, _| !key.starts_with(CALLS));
        self
    }

    /// Removes the private state: for what keeps a conversation where only its words may stand. A
    /// run that resumes from there asks again what was answered. The
    /// [guards](crate::AgentRequest::with_guard) of the conversation stay.
    pub fn without_private_state(mut self) -> Self {
        self.private_state.retain(|key, _| key == GUARDS);
        self
    }
}

impl Checkpoint {
    /// Returns whether a run that began here has done nothing until `later`: it has added no
    /// message, no agent inside has, and nothing was noted in the private state. A store may then
    /// leave the conversation as it was, with its open interrupts.
    #[must_use]
    pub fn is_untouched_in(&self, later: &Self) -> bool {
        let (before, after) = (&self.head, &later.head);
        self.messages.len() == later.messages.len()
            && after.interrupts.is_empty()
            && before.private_state == after.private_state
            && before.conversation.has_work_of(&after.conversation)
    }

    /// Creates the checkpoint of a conversation without runs.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self {
            head: CheckpointHead::default(),
            messages: messages.into(),
        }
    }

    /// Replaces the messages, for example with those before a message that the user has edited.
    /// Open interrupts are dropped.
    pub fn with_messages(self, messages: impl Into<Messages>) -> Self {
        Self {
            head: self.head.for_branch(),
            messages: messages.into(),
        }
    }

    /// Returns the checkpoint from which a run that has not begun with these messages begins.
    pub(crate) fn before(
        record: &ConversationRecord,
        messages: &Messages,
        private_state: Map<String, Value>,
    ) -> Self {
        let head = CheckpointHead {
            turn: record.turn().saturating_sub(1),
            conversation: record.head_before_run().for_length(messages.len()),
            private_state,
            ..CheckpointHead::default()
        };
        let messages = messages.clone();
        Self { head, messages }
    }

    /// Gives all open calls a result that says that their outcome is unknown: for a conversation
    /// whose latest run was lost with its process, so that no call that it may have started is
    /// repeated. The results stand in the order of the calls. Open interrupts are dropped.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::message::{Part, Role, ToolCall};
    /// use tower_agent::{Checkpoint, Message};
    ///
    /// let pays = ToolCall::new("call_1", "pay", json!({}));
    /// let pays = Message::new(Role::Assistant, [Part::from(pays)]);
    /// let lost = Checkpoint::new([Message::user("Pay the bill."), pays]);
    /// assert_eq!(lost.with_calls_stopped().messages.open_calls().count(), 0);
    /// ```
    pub fn with_calls_stopped(self) -> Self {
        let mut messages = self.messages.clone();
        let calls = messages.open_calls();
        let stopped: Vec<_> = calls
            .map(|call| refusal(call, ToolResult::STOPPED))
            .collect();
        messages.extend(stopped);
        let ordered = messages.in_call_order(messages.len());
        self.with_messages(ordered.unwrap_or(messages))
    }

    /// Returns the checkpoint of a running or ended run.
    pub(crate) fn of(
        record: &ConversationRecord,
        interrupts: Vec<Interrupt>,
        mut private_state: Map<String, Value>,
        notes_messages: bool,
    ) -> Self {
        let Saved { messages, mut head } = record.save();
        if notes_messages {
            saved_with::note(&mut private_state, &messages);
        }
        if interrupts.is_empty() {
            head = head.ended();
        }
        let head = CheckpointHead {
            interrupts,
            turn: record.turn(),
            conversation: head,
            private_state,
            ..CheckpointHead::default()
        };
        Self { head, messages }
    }
}

impl fmt::Debug for CheckpointHead {
    /// Omits the private state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointHead")
            .field("interrupts", &self.interrupts)
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}
