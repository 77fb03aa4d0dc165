use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::content::{AnyContent, Content};
use super::skip::{or_default, word};

/// One message of the conversation in the client's form.
///
/// ```
/// use tower_agent_agui::{Message, MessageKind};
///
/// let message: Message = serde_json::from_str(r#"{"id":"m1","role":"user","content":"Hello"}"#)?;
/// assert!(matches!(message.kind, MessageKind::User { .. }));
/// assert_eq!(message, Message::user("m1", "Hello"));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "AnyMessage")]
#[non_exhaustive]
pub struct Message {
    /// The message's id, unique in the thread.
    pub id: Arc<str>,
    /// The role and the content.
    #[serde(flatten)]
    pub kind: MessageKind,
    /// The sender's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Opaque provider data, to be sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_value: Option<String>,
    /// The metadata added by events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The id of the subagent that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Arc<str>>,
}

// Not `Deserialize`: serde would read a tagged enum from a buffer, see `AnyMessage`.
/// The role and content of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(
    tag = "role",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
#[non_exhaustive]
pub enum MessageKind {
    /// Instructions of the application.
    Developer {
        /// The instructions.
        content: String,
    },
    /// A system prompt.
    System {
        /// The instructions.
        content: String,
    },
    /// An assistant message with text, tool calls, or both.
    Assistant {
        /// The text.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        /// The tool calls.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// A user message.
    User {
        /// The content.
        content: Content,
    },
    /// A tool result.
    Tool {
        /// The id of the call.
        tool_call_id: Arc<str>,
        /// The content.
        content: Content,
        /// The error, if the tool failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An activity that the client shows and no model reads.
    Activity {
        /// The type of activity, such as `PLAN`.
        activity_type: String,
        /// The content.
        content: Map<String, Value>,
    },
    /// The model's reasoning.
    Reasoning {
        /// The text.
        content: String,
    },
}

impl Message {
    /// Creates a message of any kind.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, kind: MessageKind) -> Self {
        Self {
            id: id.into(),
            kind,
            name: None,
            encrypted_value: None,
            metadata: None,
            subagent_run_id: None,
        }
    }

    /// Creates a user message.
    #[must_use]
    pub fn user(id: impl Into<Arc<str>>, content: impl Into<Content>) -> Self {
        Self::new(
            id,
            MessageKind::User {
                content: content.into(),
            },
        )
    }

    /// Creates an assistant message.
    #[must_use]
    pub fn assistant(id: impl Into<Arc<str>>, content: impl Into<String>) -> Self {
        Self::new(
            id,
            MessageKind::Assistant {
                content: Some(content.into()),
                tool_calls: Vec::new(),
            },
        )
    }

    /// Creates the result of the call `tool_call_id`.
    #[must_use]
    pub fn tool(
        id: impl Into<Arc<str>>,
        tool_call_id: impl Into<Arc<str>>,
        content: impl Into<Content>,
    ) -> Self {
        Self::new(
            id,
            MessageKind::Tool {
                tool_call_id: tool_call_id.into(),
                content: content.into(),
                error: None,
            },
        )
    }

    /// Returns the tool calls.
    #[must_use]
    pub fn tool_calls(&self) -> &[ToolCall] {
        match &self.kind {
            MessageKind::Assistant { tool_calls, .. } => tool_calls,
            _ => &[],
        }
    }
}

/// A tool call of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "function", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's id; the result refers to it.
    pub id: Arc<str>,
    /// The called function.
    pub function: FunctionCall,
    /// Opaque provider data, to be sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_value: Option<String>,
    /// The metadata added by events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl ToolCall {
    /// Creates a call of the tool `name`; `arguments` is JSON text.
    #[must_use]
    pub fn new(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            function: FunctionCall {
                name: name.into(),
                arguments: arguments.into(),
            },
            encrypted_value: None,
            metadata: None,
        }
    }
}

/// The tool and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool's name.
    pub name: Arc<str>,
    /// The arguments as JSON text, as the model wrote it.
    pub arguments: String,
}

/// A message of any role, read in one pass without a buffer, so that errors have a position.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a message")]
struct AnyMessage {
    id: Arc<str>,
    #[serde(deserialize_with = "word")]
    role: AnyRole,
    // The role decides which content is allowed, and may stand after it.
    content: Option<AnyContent>,
    #[serde(default, deserialize_with = "or_default")]
    tool_calls: Vec<ToolCall>,
    tool_call_id: Option<Arc<str>>,
    error: Option<String>,
    activity_type: Option<String>,
    name: Option<String>,
    encrypted_value: Option<String>,
    metadata: Option<Map<String, Value>>,
    subagent_run_id: Option<Arc<str>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnyRole {
    Developer,
    System,
    Assistant,
    User,
    Tool,
    Activity,
    Reasoning,
}

impl TryFrom<AnyMessage> for Message {
    type Error = &'static str;

    fn try_from(message: AnyMessage) -> Result<Self, Self::Error> {
        const MISSING: &str = "missing field `content`";
        let AnyMessage {
            id,
            role,
            content,
            tool_calls,
            tool_call_id,
            error,
            ..
        } = message;
        let kind = match role {
            // Alone among the roles it needs no content: it may have only calls.
            AnyRole::Assistant => MessageKind::Assistant {
                content: content.map(AnyContent::text).transpose()?,
                tool_calls,
            },
            AnyRole::Developer => MessageKind::Developer {
                content: content.ok_or(MISSING)?.text()?,
            },
            AnyRole::System => MessageKind::System {
                content: content.ok_or(MISSING)?.text()?,
            },
            AnyRole::Reasoning => MessageKind::Reasoning {
                content: content.ok_or(MISSING)?.text()?,
            },
            AnyRole::User => MessageKind::User {
                content: content.ok_or(MISSING)?.text_or_parts()?,
            },
            AnyRole::Tool => MessageKind::Tool {
                tool_call_id: tool_call_id.ok_or("missing field `toolCallId` of a tool message")?,
                content: content.ok_or(MISSING)?.text_or_parts()?,
                error,
            },
            AnyRole::Activity => MessageKind::Activity {
                activity_type: message
                    .activity_type
                    .ok_or("missing field `activityType` of an activity message")?,
                content: content.ok_or(MISSING)?.object()?,
            },
        };
        Ok(Self {
            id,
            kind,
            name: message.name,
            encrypted_value: message.encrypted_value,
            metadata: message.metadata,
            subagent_run_id: message.subagent_run_id,
        })
    }
}
