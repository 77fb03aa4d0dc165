use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::skip::absent;
use super::{
    Content, Message, Patch, RunError, RunFinished, RunStarted, SubagentOutcome, SubagentStarted,
};

/// What an event says. [`Event`](super::Event) has a constructor for each but the chunks.
///
/// Text, tool calls and reasoning stream as a start, any number of pieces, and an end; a chunk is
/// a shorthand for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum EventKind {
    /// The run begins. The first event.
    RunStarted(Box<RunStarted>),
    /// The run has ended well, waits for somebody, or was cancelled. The last event.
    RunFinished(Box<RunFinished>),
    /// The run has failed. The last event.
    RunError(Box<RunError>),
    /// A named piece of work begins.
    StepStarted {
        /// The piece of work.
        step_name: Arc<str>,
    },
    /// A named piece of work has ended.
    StepFinished {
        /// The piece of work.
        step_name: Arc<str>,
    },

    /// A message begins.
    TextMessageStart {
        /// The message.
        message_id: Arc<str>,
        /// Who says it; the assistant, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<TextRole>,
        /// The name of who says it.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Arc<str>>,
    },
    /// A message goes on.
    TextMessageContent {
        /// The message.
        message_id: Arc<str>,
        /// What is added to it.
        delta: String,
    },
    /// A message is complete.
    TextMessageEnd {
        /// The message.
        message_id: Arc<str>,
    },
    /// A message begins or goes on.
    TextMessageChunk {
        /// The message; the one that is open, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<Arc<str>>,
        /// Who says it; the assistant, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<TextRole>,
        /// The name of who says it.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Arc<str>>,
        /// What is added to it.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
    },

    /// A tool call begins.
    ToolCallStart {
        /// The call.
        tool_call_id: Arc<str>,
        /// The tool.
        tool_call_name: Arc<str>,
        /// The message that asks for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<Arc<str>>,
    },
    /// More of a tool call's arguments.
    ToolCallArgs {
        /// The call.
        tool_call_id: Arc<str>,
        /// What is added to the JSON text of the arguments.
        delta: String,
    },
    /// A tool call's arguments are complete.
    ToolCallEnd {
        /// The call.
        tool_call_id: Arc<str>,
    },
    /// A tool call begins or goes on.
    ToolCallChunk {
        /// The call; the one that is open, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<Arc<str>>,
        /// The tool; needed where the call begins.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_name: Option<Arc<str>>,
        /// The message that asks for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<Arc<str>>,
        /// What is added to the JSON text of the arguments.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
    },
    /// A tool has answered.
    ToolCallResult {
        /// The message that the answer becomes.
        message_id: Arc<str>,
        /// The call.
        tool_call_id: Arc<str>,
        /// The answer.
        content: Content,
    },

    /// The state, whole.
    StateSnapshot {
        /// The state.
        snapshot: Value,
    },
    /// What changes in the state.
    StateDelta {
        /// The changes.
        delta: Patch,
    },
    /// The conversation, whole.
    MessagesSnapshot {
        /// Its messages.
        messages: Vec<Message>,
    },
    /// Something to show, whole.
    ActivitySnapshot {
        /// The message that it becomes.
        message_id: Arc<str>,
        /// What it is, such as `PLAN`.
        activity_type: Arc<str>,
        /// What is shown.
        content: Map<String, Value>,
        /// Whether it takes the place of an activity of that name; it does, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        replace: Option<bool>,
    },
    /// What changes in something shown.
    ActivityDelta {
        /// The message that it is.
        message_id: Arc<str>,
        /// What it is, such as `PLAN`.
        activity_type: Arc<str>,
        /// The changes.
        patch: Patch,
    },

    /// The model begins to think.
    ReasoningStart {
        /// The stretch of thought.
        message_id: Arc<str>,
    },
    /// A message of thoughts begins.
    ReasoningMessageStart {
        /// The message.
        message_id: Arc<str>,
        /// Always the same.
        role: ReasoningRole,
    },
    /// A message of thoughts goes on.
    ReasoningMessageContent {
        /// The message.
        message_id: Arc<str>,
        /// What is added to it.
        delta: String,
    },
    /// A message of thoughts is complete.
    ReasoningMessageEnd {
        /// The message.
        message_id: Arc<str>,
    },
    /// A message of thoughts begins or goes on.
    ReasoningMessageChunk {
        /// The message; the one that is open, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<Arc<str>>,
        /// What is added to it.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<String>,
    },
    /// The model has thought.
    ReasoningEnd {
        /// The stretch of thought.
        message_id: Arc<str>,
    },
    /// What only the provider can read, to be sent back with a message or a call.
    ReasoningEncryptedValue {
        /// What it belongs to.
        subtype: EncryptedEntity,
        /// Which of them.
        entity_id: Arc<str>,
        /// The value.
        encrypted_value: String,
    },

    /// An agent within the agent begins.
    SubagentStarted(Box<SubagentStarted>),
    /// An agent within the agent has ended well, or waits.
    SubagentFinished {
        /// Its run.
        subagent_run_id: Arc<str>,
        /// What it came to.
        #[serde(skip_serializing_if = "absent", default)]
        result: Option<Value>,
        /// How it ended; well, if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<SubagentOutcome>,
    },
    /// An agent within the agent has failed.
    SubagentError {
        /// Its run.
        subagent_run_id: Arc<str>,
        /// What happened, for people.
        message: String,
        /// What happened, for programs.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Arc<str>>,
    },

    /// An event of another protocol, passed on.
    Raw {
        /// The event.
        event: Value,
        /// Where it comes from.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<Arc<str>>,
    },
    /// An event of the application's own.
    Custom {
        /// Its name.
        name: Arc<str>,
        /// What it carries.
        value: Value,
    },
}

impl EventKind {
    /// What a piece of something goes on with, and what it adds.
    pub(crate) fn piece(&self) -> Option<(&Arc<str>, &str)> {
        match self {
            Self::TextMessageContent { message_id: id, delta }
            | Self::ReasoningMessageContent { message_id: id, delta }
            | Self::ToolCallArgs { tool_call_id: id, delta } => Some((id, delta)),
            _ => None,
        }
    }

    /// The event's name on the wire.
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

    /// The agent within the agent whose beginning or end this is.
    pub(super) fn subagent(&self) -> Option<&Arc<str>> {
        match self {
            Self::SubagentStarted(started) => Some(&started.subagent_run_id),
            Self::SubagentFinished { subagent_run_id, .. }
            | Self::SubagentError { subagent_run_id, .. } => Some(subagent_run_id),
            _ => None,
        }
    }
}

/// Who says a streamed message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TextRole {
    /// The application.
    Developer,
    /// The application, or whoever runs it.
    System,
    /// The agent.
    #[default]
    Assistant,
    /// The user.
    User,
}

/// The role of a message of thoughts: there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningRole {
    /// The model thinks.
    #[default]
    Reasoning,
}

/// What an encrypted value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EncryptedEntity {
    /// A tool call.
    ToolCall,
    /// A message, of text or of thoughts.
    Message,
}
