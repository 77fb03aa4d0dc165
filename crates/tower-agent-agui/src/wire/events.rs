//! A constructor for each kind of event.

use std::sync::Arc;

use serde_json::{Map, Value};

use json_patch::Patch;

use super::content::Content;
use super::event::Event;
use super::kind::{EncryptedEntity, EventKind, ReasoningRole};
use super::message::Message;
use super::run::{RunError, RunFinished, RunStarted, SubagentStarted};

impl Event {
    /// Creates the start of a run. For more fields use [`RunStarted`].
    #[must_use]
    pub fn run_started(thread_id: impl Into<Arc<str>>, run_id: impl Into<Arc<str>>) -> Self {
        RunStarted::new(thread_id, run_id).into()
    }

    /// Creates the successful end of a run. For more fields use [`RunFinished`].
    #[must_use]
    pub fn run_finished(thread_id: impl Into<Arc<str>>, run_id: impl Into<Arc<str>>) -> Self {
        RunFinished::new(thread_id, run_id).into()
    }

    /// Creates the failure of a run. For more fields use [`RunError`].
    #[must_use]
    pub fn run_error(message: impl Into<String>) -> Self {
        RunError::new(message).into()
    }

    /// Creates the start of a named step.
    #[must_use]
    pub fn step_started(name: impl Into<Arc<str>>) -> Self {
        EventKind::StepStarted {
            step_name: name.into(),
        }
        .into()
    }

    /// Creates the end of a named step.
    #[must_use]
    pub fn step_finished(name: impl Into<Arc<str>>) -> Self {
        EventKind::StepFinished {
            step_name: name.into(),
        }
        .into()
    }

    /// Creates the start of an assistant message.
    #[must_use]
    pub fn text_start(message_id: impl Into<Arc<str>>) -> Self {
        EventKind::TextMessageStart {
            message_id: message_id.into(),
            role: None,
            name: None,
        }
        .into()
    }

    /// Creates a delta of a message.
    #[must_use]
    pub fn text_content(message_id: impl Into<Arc<str>>, delta: impl Into<String>) -> Self {
        EventKind::TextMessageContent {
            message_id: message_id.into(),
            delta: delta.into(),
        }
        .into()
    }

    /// Creates the end of a message.
    #[must_use]
    pub fn text_end(message_id: impl Into<Arc<str>>) -> Self {
        EventKind::TextMessageEnd {
            message_id: message_id.into(),
        }
        .into()
    }

    /// Creates the start of a call of the tool `name`, which is part of the message `parent`.
    #[must_use]
    pub fn tool_call_start(
        tool_call_id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        parent: Option<Arc<str>>,
    ) -> Self {
        EventKind::ToolCallStart {
            tool_call_id: tool_call_id.into(),
            tool_call_name: name.into(),
            parent_message_id: parent,
        }
        .into()
    }

    /// Creates a delta of a tool call's arguments: a piece of JSON text.
    #[must_use]
    pub fn tool_call_args(tool_call_id: impl Into<Arc<str>>, delta: impl Into<String>) -> Self {
        EventKind::ToolCallArgs {
            tool_call_id: tool_call_id.into(),
            delta: delta.into(),
        }
        .into()
    }

    /// Creates the end of a tool call's arguments.
    #[must_use]
    pub fn tool_call_end(tool_call_id: impl Into<Arc<str>>) -> Self {
        EventKind::ToolCallEnd {
            tool_call_id: tool_call_id.into(),
        }
        .into()
    }

    /// Creates the result of a tool call, which becomes the message `message_id`.
    #[must_use]
    pub fn tool_call_result(
        message_id: impl Into<Arc<str>>,
        tool_call_id: impl Into<Arc<str>>,
        content: impl Into<Content>,
    ) -> Self {
        EventKind::ToolCallResult {
            message_id: message_id.into(),
            tool_call_id: tool_call_id.into(),
            content: content.into(),
        }
        .into()
    }

    /// Creates a snapshot of the state.
    #[must_use]
    pub fn state_snapshot(snapshot: impl Into<Value>) -> Self {
        EventKind::StateSnapshot {
            snapshot: snapshot.into(),
        }
        .into()
    }

    /// Creates a change of the state.
    #[must_use]
    pub fn state_delta(delta: Patch) -> Self {
        EventKind::StateDelta { delta }.into()
    }

    /// Creates a snapshot of the conversation.
    #[must_use]
    pub fn messages_snapshot(messages: Vec<Message>) -> Self {
        EventKind::MessagesSnapshot { messages }.into()
    }

    /// Creates a snapshot of an activity, which replaces the message's previous content.
    #[must_use]
    pub fn activity_snapshot(
        message_id: impl Into<Arc<str>>,
        activity_type: impl Into<Arc<str>>,
        content: Map<String, Value>,
    ) -> Self {
        EventKind::ActivitySnapshot {
            message_id: message_id.into(),
            activity_type: activity_type.into(),
            content,
            replace: None,
        }
        .into()
    }

    /// Creates a change of an activity.
    #[must_use]
    pub fn activity_delta(
        message_id: impl Into<Arc<str>>,
        activity_type: impl Into<Arc<str>>,
        patch: Patch,
    ) -> Self {
        EventKind::ActivityDelta {
            message_id: message_id.into(),
            activity_type: activity_type.into(),
            patch,
        }
        .into()
    }

    /// Creates the start of reasoning.
    #[must_use]
    pub fn reasoning_start(message_id: impl Into<Arc<str>>) -> Self {
        EventKind::ReasoningStart {
            message_id: message_id.into(),
        }
        .into()
    }

    /// Creates the start of a reasoning message.
    #[must_use]
    pub fn reasoning_message_start(message_id: impl Into<Arc<str>>) -> Self {
        EventKind::ReasoningMessageStart {
            message_id: message_id.into(),
            role: ReasoningRole::Reasoning,
        }
        .into()
    }

    /// Creates a delta of a reasoning message.
    #[must_use]
    pub fn reasoning_message_content(
        message_id: impl Into<Arc<str>>,
        delta: impl Into<String>,
    ) -> Self {
        EventKind::ReasoningMessageContent {
            message_id: message_id.into(),
            delta: delta.into(),
        }
        .into()
    }

    /// Creates the end of a reasoning message.
    #[must_use]
    pub fn reasoning_message_end(message_id: impl Into<Arc<str>>) -> Self {
        EventKind::ReasoningMessageEnd {
            message_id: message_id.into(),
        }
        .into()
    }

    /// Creates the end of reasoning.
    #[must_use]
    pub fn reasoning_end(message_id: impl Into<Arc<str>>) -> Self {
        EventKind::ReasoningEnd {
            message_id: message_id.into(),
        }
        .into()
    }

    /// Creates opaque provider data, to be sent back with a message or a call.
    #[must_use]
    pub fn reasoning_encrypted_value(
        subtype: EncryptedEntity,
        entity_id: impl Into<Arc<str>>,
        encrypted_value: impl Into<String>,
    ) -> Self {
        EventKind::ReasoningEncryptedValue {
            subtype,
            entity_id: entity_id.into(),
            encrypted_value: encrypted_value.into(),
        }
        .into()
    }

    /// Creates the start of the subagent `name`. For more fields use [`SubagentStarted`].
    #[must_use]
    pub fn subagent_started(
        subagent_run_id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        SubagentStarted::new(subagent_run_id, name).into()
    }

    /// Creates the successful end of a subagent.
    #[must_use]
    pub fn subagent_finished(subagent_run_id: impl Into<Arc<str>>) -> Self {
        EventKind::SubagentFinished {
            subagent_run_id: subagent_run_id.into(),
            result: None,
            outcome: None,
        }
        .into()
    }

    /// Creates the failure of a subagent.
    #[must_use]
    pub fn subagent_error(
        subagent_run_id: impl Into<Arc<str>>,
        message: impl Into<String>,
    ) -> Self {
        EventKind::SubagentError {
            subagent_run_id: subagent_run_id.into(),
            message: message.into(),
            code: None,
        }
        .into()
    }

    /// Creates an event of another protocol.
    #[must_use]
    pub fn raw(event: impl Into<Value>) -> Self {
        EventKind::Raw {
            event: event.into(),
            source: None,
        }
        .into()
    }

    /// Creates an event of the application's own.
    #[must_use]
    pub fn custom(name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        EventKind::Custom {
            name: name.into(),
            value: value.into(),
        }
        .into()
    }
}
