use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::body::{MessageBody, OtherBody};
use super::finish_reason::{FinishReason, NoAnswer};
use super::message_id::MessageId;
use super::part::{Part, ToolResult};
use super::provider_data::ProviderData;
use super::role::Role;
use super::tool_call::ToolCall;

/// One message of a conversation. Cloning is O(1).
///
/// ```
/// use tower_agent::message::MediaSource;
/// use tower_agent::{Message, Part, Role};
///
/// let message = Message::user("What is on this picture?")
///     .with_part(Part::image(MediaSource::url("https://example.com/cat.png")));
/// assert_eq!(message.role(), Role::User);
/// assert_eq!(message.text(), "What is on this picture?");
/// assert_eq!(message.parts().len(), 2);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Message(Arc<Content>);

#[derive(Clone)]
struct Content {
    id: Option<MessageId>,
    role: Role,
    body: MessageBody,
}

// With its two counts, a message fits into one of the allocator's chunks of 128 bytes, of which it
// keeps free ones at hand. When a part grew by three words, each run took a sixth more
// instructions.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Content>() <= 120 - 2 * size_of::<usize>());

#[derive(Serialize)]
struct WrittenMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a MessageId>,
    role: Role,
    parts: &'a [Part],
    #[serde(skip_serializing_if = "ProviderData::is_empty")]
    provider: &'a ProviderData,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename = "Message")]
struct ReadMessage {
    #[serde(default)]
    id: Option<MessageId>,
    role: Role,
    parts: Vec<Part>,
    #[serde(default)]
    provider: ProviderData,
    #[serde(default)]
    finish_reason: Option<FinishReason>,
    #[serde(default)]
    author: Option<Arc<str>>,
}

impl Message {
    /// Creates a message of these parts.
    pub fn new(role: Role, parts: impl IntoIterator<Item = Part>) -> Self {
        Self(Arc::new(Content {
            id: None,
            role,
            body: parts.into_iter().collect(),
        }))
    }

    fn content_mut(&mut self) -> &mut Content {
        Arc::make_mut(&mut self.0)
    }

    fn other(&self) -> Option<&OtherBody> {
        self.0.body.other()
    }

    fn other_mut(&mut self) -> &mut OtherBody {
        self.content_mut().body.other_mut()
    }

    /// Creates a system message with this text.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, [Part::from_text(text)])
    }

    /// Creates a user message with this text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, [Part::from_text(text)])
    }

    /// Creates an assistant message with this text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, [Part::from_text(text)])
    }

    /// Creates a message with the result of a tool call.
    pub fn tool(result: ToolResult) -> Self {
        Self::new(Role::Tool, [Part::ToolResult(result)])
    }

    /// Sets the id, for example the one that a client has chosen. It must be unique in the
    /// conversation. By default, the run that adds the message chooses one.
    pub fn with_id(mut self, id: impl Into<MessageId>) -> Self {
        self.set_id(id.into());
        self
    }

    /// Returns the id, if it has one: every message of a run's transcript does.
    #[must_use]
    pub fn id(&self) -> Option<&MessageId> {
        self.0.id.as_ref()
    }

    pub(crate) fn set_id(&mut self, id: MessageId) {
        self.content_mut().id = Some(id);
    }

    pub(crate) fn with_optional_id(mut self, id: Option<&MessageId>) -> Self {
        if let Some(id) = id {
            self.set_id(id.clone());
        }
        self
    }

    pub(crate) fn clear_id(&mut self) {
        self.content_mut().id = None;
    }

    /// Adds a part.
    pub fn with_part(mut self, part: Part) -> Self {
        self.parts_mut().push(part);
        self
    }

    /// Returns the role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.0.role
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        self.content_mut().role = role;
    }

    /// Returns the parts.
    pub fn parts(&self) -> &[Part] {
        self.0.body.parts()
    }

    /// Returns the parts, to change them. Copies them if another clone shares them.
    pub fn parts_mut(&mut self) -> &mut Vec<Part> {
        &mut self.other_mut().parts
    }

    /// Returns whether both are clones of one another, without later changes. Equal messages that
    /// are no clones are others: to compare them would take a pass over every byte.
    ///
    /// ```
    /// use tower_agent::Message;
    ///
    /// let message = Message::user("Hello");
    /// assert!(message.is_clone_of(&message.clone()));
    /// assert!(!message.is_clone_of(&Message::user("Hello")));
    /// ```
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the text of all text parts, joined.
    ///
    /// It has neither reasoning, nor tool results, nor the arguments of tool calls. A guard that
    /// looks for something in a message must read its [`parts`](Self::parts).
    #[must_use]
    pub fn text(&self) -> String {
        self.parts().iter().filter_map(Part::as_text).collect()
    }

    /// Returns the tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> + Clone {
        self.parts().iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the tool results, in order.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> + Clone {
        self.parts().iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Returns provider data that must be sent back.
    #[must_use]
    pub fn provider(&self) -> &ProviderData {
        static NONE: ProviderData = ProviderData::none();
        self.other().map_or(&NONE, |other| &other.provider)
    }

    /// Returns how the model's turn ended that wrote this message. A message that no model wrote
    /// has the reason of a whole one: [`ToolCalls`](FinishReason::ToolCalls) if it has tool calls,
    /// otherwise [`Stop`](FinishReason::Stop).
    /// It is kept in checkpoints, and is no part of what is sent to a provider.
    #[must_use]
    pub fn finish_reason(&self) -> &FinishReason {
        static STOP: FinishReason = FinishReason::Stop;
        static TOOL_CALLS: FinishReason = FinishReason::ToolCalls;
        match self.unusual_finish_reason() {
            Some(unusual) => unusual,
            None if self.tool_calls().next().is_some() => &TOOL_CALLS,
            None => &STOP,
        }
    }

    fn unusual_finish_reason(&self) -> Option<&FinishReason> {
        self.other()?.finish_reason.as_ref()
    }

    pub(crate) fn set_finish_reason(&mut self, reason: FinishReason) {
        let is_usual = matches!(reason, FinishReason::Stop | FinishReason::ToolCalls);
        let reason = (!is_usual).then_some(reason);
        // Checked first, because changing a shared message copies it.
        if self.unusual_finish_reason() != reason.as_ref() {
            self.other_mut().finish_reason = reason;
        }
    }

    /// Sets the author, for a conversation that comes from elsewhere. An agent that shares its
    /// conversation with others sets it itself.
    pub fn with_author(mut self, author: impl Into<Arc<str>>) -> Self {
        self.set_author(author.into());
        self
    }

    /// Returns the agent that said this, as the path from the agent whose conversation it is, such
    /// as `desk/loans`. `None` for what users and tools say, and for an agent alone in its
    /// conversation.
    ///
    /// It is kept in checkpoints, and is no part of what is sent to a provider.
    #[must_use]
    pub fn author(&self) -> Option<&str> {
        self.other()?.author.as_deref()
    }

    /// Returns whether a tool call has brought the message, as its result or beside it.
    pub(crate) fn is_brought(&self) -> bool {
        let place = self.id().and_then(MessageId::place);
        self.role() == Role::Tool || place.is_some_and(|place| place.call.is_some())
    }

    pub(crate) fn set_author(&mut self, author: Arc<str>) {
        self.other_mut().author = Some(author);
    }

    /// Returns why the message, the last one of a model, is no answer, if it is none. One with tool
    /// calls is not the last, and so neither.
    #[must_use]
    pub fn no_answer(&self) -> Option<NoAnswer> {
        let shows_nothing = |part: &Part| match part {
            Part::Text(text) => text.text.trim().is_empty(),
            Part::Reasoning(_) => true,
            _ => false,
        };
        if self.tool_calls().next().is_some() {
            return None;
        }
        match self.finish_reason() {
            FinishReason::Length => Some(NoAnswer::CutOff),
            FinishReason::ContentFilter => Some(NoAnswer::Filtered),
            FinishReason::Refusal => Some(NoAnswer::Refused),
            _ => (self.parts().iter().all(shows_nothing)).then_some(NoAnswer::Empty),
        }
    }

    /// Returns provider data that must be sent back, to change it.
    pub fn provider_mut(&mut self) -> &mut ProviderData {
        &mut self.other_mut().provider
    }
}

/// Compares the contents; messages with different ids, finish reasons or authors can be equal.
impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        if self.is_clone_of(other) {
            return true;
        }
        // Which message it is, whose, and why it ends, is no part of what it says.
        self.role() == other.role()
            && self.parts() == other.parts()
            && self.provider() == other.provider()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut message = f.debug_struct("Message");
        if let Some(id) = self.id() {
            message.field("id", id);
        }
        message
            .field("role", &self.role())
            .field("parts", &self.parts())
            .field("provider", self.provider());
        if let Some(reason) = self.unusual_finish_reason() {
            message.field("finish_reason", reason);
        }
        if let Some(author) = self.author() {
            message.field("author", &author);
        }
        message.finish()
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = WrittenMessage {
            id: self.id(),
            role: self.role(),
            parts: self.parts(),
            provider: self.provider(),
            finish_reason: self.unusual_finish_reason(),
            author: self.author(),
        };
        message.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let message = ReadMessage::deserialize(deserializer)?;
        Ok(Self(Arc::new(Content {
            id: message.id,
            role: message.role,
            body: MessageBody::from(OtherBody {
                parts: message.parts,
                provider: message.provider,
                finish_reason: message.finish_reason,
                author: message.author,
            }),
        })))
    }
}

impl From<&str> for Message {
    /// Creates a user message.
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    /// Creates a user message.
    fn from(text: String) -> Self {
        Self::user(text)
    }
}
