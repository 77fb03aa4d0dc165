use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use json_patch::Patch;

use super::content::Content;
use super::message::Message;
use super::run::{RunError, RunFinished, RunStarted, SubagentOutcome, SubagentStarted};
use super::skip::absent;

/// The kind of an event, with its data. [`Event`](super::Event) has a constructor for each kind
/// except chunks.
///
/// Text, tool calls and reasoning are streamed as a start, any number of deltas, and an end; a
/// chunk is a shorthand for these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
#[non_exhaustive]
// With a tag of one byte, every move of an `Option<Event>` copies the rest from an odd address.
#[repr(u64)]
pub enum EventKind {
    // Boxed: a run has few of these, and every piece of text would be as large as the largest kind.
    /// The run starts. The first event.
    RunStarted(Box<RunStarted>),
    /// The run has completed, was interrupted or was cancelled. The last event.
    RunFinished(Box<RunFinished>),
    /// The run has failed. The last event.
    RunError(Box<RunError>),
    /// A named step starts.
    StepStarted {
        /// The name of the step.
        step_name: Arc<str>,
    },
    /// A named step has ended.
    StepFinished {
        /// The name of the step.
        step_name: Arc<str>,
    },

    /// A message starts.
    TextMessageStart {
        /// The message's id.
        message_id: Arc<str>,
        /// The role. Defaults to the assistant.
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<TextRole>,
        /// The sender's name.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Arc<str>>,
    },
    /// A delta of a message.
    TextMessageContent {
        /// The message's id.
        message_id: Arc<str>,
        /// The added text.
        delta: String,
    },
    /// A message has ended.
    TextMessageEnd {
        /// The message's id.
        message_id: Arc<str>,
    },
    /// A message starts or continues.
    TextMessageChunk {
        /// The message's id. Defaults to the open message.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<Arc<str>>,
        /// The role. Defaults to the assistant.
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<TextRole>,
        /// The sender's name.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Arc<str>>,
        /// The added text.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
    },

    /// A tool call starts.
    ToolCallStart {
        /// The call's id.
        tool_call_id: Arc<str>,
        /// The tool's name.
        tool_call_name: Arc<str>,
        /// The id of the message with the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<Arc<str>>,
    },
    /// A delta of a tool call's arguments.
    ToolCallArgs {
        /// The call's id.
        tool_call_id: Arc<str>,
        /// The added JSON text.
        delta: String,
    },
    /// A tool call's arguments are complete.
    ToolCallEnd {
        /// The call's id.
        tool_call_id: Arc<str>,
    },
    /// A tool call starts or continues.
    ToolCallChunk {
        /// The call's id. Defaults to the open call.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<Arc<str>>,
        /// The tool's name; required where the call starts.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_name: Option<Arc<str>>,
        /// The id of the message with the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<Arc<str>>,
        /// The added JSON text.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
    },
    /// The result of a tool call.
    ToolCallResult {
        /// The id of the message that the result becomes.
        message_id: Arc<str>,
        /// The call's id.
        tool_call_id: Arc<str>,
        /// The result.
        content: Content,
    },

    /// A snapshot of the state.
    StateSnapshot {
        /// The state.
        snapshot: Value,
    },
    /// A change of the state.
    StateDelta {
        /// The changes.
        delta: Patch,
    },
    /// A snapshot of the conversation.
    MessagesSnapshot {
        /// The messages.
        messages: Vec<Message>,
    },
    /// A snapshot of an activity.
    ActivitySnapshot {
        /// The id of the message that it becomes.
        message_id: Arc<str>,
        /// The type of activity, such as `PLAN`.
        activity_type: Arc<str>,
        /// The content.
        content: Map<String, Value>,
        /// It replaces an activity with the same id. Defaults to `true`.
        #[serde(skip_serializing_if = "Option::is_none")]
        replace: Option<bool>,
    },
    /// A change of an activity.
    ActivityDelta {
        /// The id of its message.
        message_id: Arc<str>,
        /// The type of activity, such as `PLAN`.
        activity_type: Arc<str>,
        /// The changes.
        patch: Patch,
    },

    /// Reasoning starts.
    ReasoningStart {
        /// The id of the reasoning block.
        message_id: Arc<str>,
    },
    /// A reasoning message starts.
    ReasoningMessageStart {
        /// The message's id.
        message_id: Arc<str>,
        /// Always [`ReasoningRole::Reasoning`].
        role: ReasoningRole,
    },
    /// A delta of a reasoning message.
    ReasoningMessageContent {
        /// The message's id.
        message_id: Arc<str>,
        /// The added text.
        delta: String,
    },
    /// A reasoning message has ended.
    ReasoningMessageEnd {
        /// The message's id.
        message_id: Arc<str>,
    },
    /// A reasoning message starts or continues.
    ReasoningMessageChunk {
        /// The message's id. Defaults to the open message.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<Arc<str>>,
        /// The added text.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
    },
    /// Reasoning ends.
    ReasoningEnd {
        /// The id of the reasoning block.
        message_id: Arc<str>,
    },
    /// Opaque provider data, to be sent back with a message or a call.
    ReasoningEncryptedValue {
        /// The kind of entity that it belongs to.
        subtype: EncryptedEntity,
        /// The id of the entity.
        entity_id: Arc<str>,
        /// The value.
        encrypted_value: String,
    },

    /// A subagent starts.
    SubagentStarted(Box<SubagentStarted>),
    /// A subagent has completed or was interrupted.
    SubagentFinished {
        /// The id of its run.
        subagent_run_id: Arc<str>,
        /// The result.
        #[serde(skip_serializing_if = "absent", default)]
        result: Option<Value>,
        /// The outcome. Defaults to success.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<SubagentOutcome>,
    },
    /// A subagent has failed.
    SubagentError {
        /// The id of its run.
        subagent_run_id: Arc<str>,
        /// The message, for people.
        message: String,
        /// The code, for programs.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Arc<str>>,
    },

    /// An event of another protocol.
    Raw {
        /// The event.
        event: Value,
        /// The source of the event.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<Arc<str>>,
    },
    /// An event of the application's own.
    Custom {
        /// The name.
        name: Arc<str>,
        /// The data.
        value: Value,
    },
}

impl EventKind {
    /// Returns the id of the entity that a delta continues, and the added text.
    pub(crate) fn piece(&self) -> Option<(&Arc<str>, &str)> {
        match self {
            Self::TextMessageContent {
                message_id: id,
                delta,
            }
            | Self::ReasoningMessageContent {
                message_id: id,
                delta,
            }
            | Self::ToolCallArgs {
                tool_call_id: id,
                delta,
            } => Some((id, delta)),
            _ => None,
        }
    }

    /// Returns the event's name on the wire.
    ///
    /// ```
    /// use tower_agent_agui::Event;
    ///
    /// assert_eq!(Event::text_end("m1").kind.name(), "TEXT_MESSAGE_END");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "RUN_STARTED",
            Self::RunFinished(_) => "RUN_FINISHED",
            Self::RunError(_) => "RUN_ERROR",
            Self::StepStarted { .. } => "STEP_STARTED",
            Self::StepFinished { .. } => "STEP_FINISHED",
            Self::TextMessageStart { .. } => "TEXT_MESSAGE_START",
            Self::TextMessageContent { .. } => "TEXT_MESSAGE_CONTENT",
            Self::TextMessageEnd { .. } => "TEXT_MESSAGE_END",
            Self::TextMessageChunk { .. } => "TEXT_MESSAGE_CHUNK",
            Self::ToolCallStart { .. } => "TOOL_CALL_START",
            Self::ToolCallArgs { .. } => "TOOL_CALL_ARGS",
            Self::ToolCallEnd { .. } => "TOOL_CALL_END",
            Self::ToolCallChunk { .. } => "TOOL_CALL_CHUNK",
            Self::ToolCallResult { .. } => "TOOL_CALL_RESULT",
            Self::StateSnapshot { .. } => "STATE_SNAPSHOT",
            Self::StateDelta { .. } => "STATE_DELTA",
            Self::MessagesSnapshot { .. } => "MESSAGES_SNAPSHOT",
            Self::ActivitySnapshot { .. } => "ACTIVITY_SNAPSHOT",
            Self::ActivityDelta { .. } => "ACTIVITY_DELTA",
            Self::ReasoningStart { .. } => "REASONING_START",
            Self::ReasoningMessageStart { .. } => "REASONING_MESSAGE_START",
            Self::ReasoningMessageContent { .. } => "REASONING_MESSAGE_CONTENT",
            Self::ReasoningMessageEnd { .. } => "REASONING_MESSAGE_END",
            Self::ReasoningMessageChunk { .. } => "REASONING_MESSAGE_CHUNK",
            Self::ReasoningEnd { .. } => "REASONING_END",
            Self::ReasoningEncryptedValue { .. } => "REASONING_ENCRYPTED_VALUE",
            Self::SubagentStarted(_) => "SUBAGENT_STARTED",
            Self::SubagentFinished { .. } => "SUBAGENT_FINISHED",
            Self::SubagentError { .. } => "SUBAGENT_ERROR",
            Self::Raw { .. } => "RAW",
            Self::Custom { .. } => "CUSTOM",
        }
    }

    /// Returns the subagent whose start or end this is.
    pub(super) fn subagent(&self) -> Option<&Arc<str>> {
        match self {
            Self::SubagentStarted(started) => Some(&started.subagent_run_id),
            Self::SubagentFinished {
                subagent_run_id, ..
            }
            | Self::SubagentError {
                subagent_run_id, ..
            } => Some(subagent_run_id),
            _ => None,
        }
    }
}

/// The role of a streamed message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TextRole {
    /// The application.
    Developer,
    /// The application or its operator.
    System,
    /// The agent.
    #[default]
    Assistant,
    /// The user.
    User,
}

/// The role of a reasoning message; there is only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningRole {
    /// The model's reasoning.
    #[default]
    Reasoning,
}

/// The kind of entity that an encrypted value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EncryptedEntity {
    /// A tool call.
    ToolCall,
    /// A message of text or reasoning.
    Message,
}
