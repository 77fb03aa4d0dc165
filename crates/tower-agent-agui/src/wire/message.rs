use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::content::{AnyContent, Content};
use super::skip::{or_default, word};

/// One message of the conversation as the front end keeps it.
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
    /// The message's name, unique in the conversation.
    pub id: Arc<str>,
    /// Who says it, and what.
    #[serde(flatten)]
    pub kind: MessageKind,
    /// The name of who says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What only the provider can read, and must get back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_value: Option<String>,
    /// What events added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The agent within the agent that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Arc<str>>,
}

/// Who says a message, and what.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum MessageKind {
    /// Instructions of the application.
    Developer {
        /// The instructions.
        content: String,
    },
    /// Instructions.
    System {
        /// The instructions.
        content: String,
    },
    /// The agent speaks, asks for tools, or both.
    Assistant {
        /// What it says.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        /// The tools it asks for.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The user speaks.
    User {
        /// What the user says.
        content: Content,
    },
    /// A tool answers.
    Tool {
        /// The call it answers.
        tool_call_id: Arc<str>,
        /// What it answers.
        content: Content,
        /// What went wrong, if it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Something the front end shows, which no model reads.
    Activity {
        /// What it is, such as `PLAN`.
        activity_type: String,
        /// What is shown.
        content: Map<String, Value>,
    },
    /// What the model thought.
    Reasoning {
        /// The thoughts.
        content: String,
    },
}

impl Message {
    /// A message of any kind.
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

    /// What the user says.
    #[must_use]
    pub fn user(id: impl Into<Arc<str>>, content: impl Into<Content>) -> Self {
        Self::new(id, MessageKind::User { content: content.into() })
    }

    /// What the agent says.
    #[must_use]
    pub fn assistant(id: impl Into<Arc<str>>, content: impl Into<String>) -> Self {
        let content = Some(content.into());
        Self::new(id, MessageKind::Assistant { content, tool_calls: Vec::new() })
    }

    /// What a tool answers to the call `tool_call_id`.
    #[must_use]
    pub fn tool(
        id: impl Into<Arc<str>>,
        tool_call_id: impl Into<Arc<str>>,
        content: impl Into<Content>,
    ) -> Self {
        let (tool_call_id, content) = (tool_call_id.into(), content.into());
        Self::new(id, MessageKind::Tool { tool_call_id, content, error: None })
    }

    /// The tools it asks for.
    #[must_use]
    pub fn tool_calls(&self) -> &[ToolCall] {
        match &self.kind {
            MessageKind::Assistant { tool_calls, .. } => tool_calls,
            _ => &[],
        }
    }
}

/// A tool that the agent asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "function", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's name; the answer carries it.
    pub id: Arc<str>,
    /// What is called.
    pub function: FunctionCall,
    /// What only the provider can read, and must get back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_value: Option<String>,
    /// What events added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl ToolCall {
    /// A call of the tool `name`; `arguments` is JSON text.
    #[must_use]
    pub fn new(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            function: FunctionCall { name: name.into(), arguments: arguments.into() },
            encrypted_value: None,
            metadata: None,
        }
    }
}

/// A tool, and what it is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool.
    pub name: Arc<str>,
    /// The arguments, as the text that the model wrote.
    pub arguments: String,
}

/// A message of any role, as it is read: one pass, no buffer, and an error knows its place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a message")]
struct AnyMessage {
    id: Arc<str>,
    #[serde(deserialize_with = "word")]
    role: AnyRole,
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
        let AnyMessage { id, role, content, tool_calls, tool_call_id, error, .. } = message;
        let kind = match role {
            AnyRole::Assistant => MessageKind::Assistant {
                content: content.map(AnyContent::text).transpose()?,
                tool_calls,
            },
            AnyRole::Developer => {
                MessageKind::Developer { content: content.ok_or(MISSING)?.text()? }
            }
            AnyRole::System => MessageKind::System { content: content.ok_or(MISSING)?.text()? },
            AnyRole::Reasoning => {
                MessageKind::Reasoning { content: content.ok_or(MISSING)?.text()? }
            }
            AnyRole::User => {
                MessageKind::User { content: content.ok_or(MISSING)?.text_or_parts()? }
            }
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
