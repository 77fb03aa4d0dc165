use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::seen::SeenModelResponse;
use crate::call::{Counted, Origin};
use crate::error::Result;
use crate::message::{FinishReason, Message, Metadata, NoAnswer, Part, Role, ToolCall, Usage};
use crate::stream::{DeltaSender, Streamed};

/// The response of a model call. Cloning is O(1).
///
/// It serialises, without the number of its [attempt](Self::attempt), which counts in one process.
///
/// ```
/// use tower_agent::{Message, ModelResponse, Usage};
/// use tower_agent::model::FinishReason;
///
/// let response = ModelResponse::new(Message::assistant("blue")).with_usage(Usage::new(12, 1));
/// assert_eq!(response.finish_reason(), &FinishReason::Stop);
/// assert_eq!(response.usage().total(), 13);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelResponse {
    message: Message,
    #[serde(default)]
    usage: Usage,
    /// `None` if nothing is known, so that a response without it has no allocation for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Arc<Metadata>>,
    /// The words with which the model is asked again, if it is. Boxed, since few responses have
    /// some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<Box<Message>>,
    #[serde(skip)]
    attempt: Option<u32>,
    #[serde(default)]
    origin: Origin,
    /// A callback returned it, or the response it replaces, instead of the model.
    #[serde(default)]
    is_given: bool,
    /// Created by a constructor and not yet used as a replacement: it says nothing about the tool
    /// calls of the response it replaces. A response that was stored is complete.
    #[serde(skip)]
    is_bare: bool,
    #[serde(skip)]
    counted: Counted,
}

impl PartialEq for ModelResponse {
    fn eq(&self, other: &Self) -> bool {
        // Without `..`, so that a new field is compared or left out on purpose.
        let Self {
            message,
            usage,
            metadata,
            again,
            attempt,
            origin,
            is_given,
            // How the response was made, not what it says; it is lost when it is stored.
            is_bare: _,
            counted: _,
        } = self;
        *usage == other.usage
            && *attempt == other.attempt
            && *origin == other.origin
            && *is_given == other.is_given
            && *message == other.message
            && self.finish_reason() == other.finish_reason()
            && *metadata == other.metadata
            && *again == other.again
    }
}

impl ModelResponse {
    /// Creates a response with this message and its [finish reason](Message::finish_reason).
    #[must_use]
    pub fn new(message: Message) -> Self {
        Self {
            message,
            usage: Usage::default(),
            metadata: None,
            again: None,
            attempt: None,
            origin: Origin::default(),
            is_given: false,
            is_bare: true,
            counted: Counted::default(),
        }
    }

    /// Returns why the response is [no answer](Message::no_answer), if it is none. An empty one of
    /// a callback is an answer: it wants to say nothing.
    #[must_use]
    pub fn no_answer(&self) -> Option<NoAnswer> {
        let is_of_callback = matches!(
            self.origin,
            Origin::Before | Origin::After | Origin::Fallback
        );
        let why = self.message.no_answer();
        why.filter(|why| *why != NoAnswer::Empty || !is_of_callback)
    }

    /// Creates a response of text only.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::new(Message::assistant(text))
    }

    /// Creates a response of tool calls only.
    #[must_use]
    pub fn from_tool_calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::new(Message::new(
            Role::Assistant,
            calls.into_iter().map(Part::ToolCall),
        ))
    }

    /// Sets the text and keeps everything else: reasoning, tool calls, usage, finish reason and
    /// provider data.
    ///
    /// The text replaces all text parts, at the position of the first. If there is none, it is
    /// inserted before the first tool call.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Message, ModelResponse, Part, Usage};
    /// use tower_agent::message::ToolCall;
    ///
    /// let call = ToolCall::new("call_1", "add", json!({ "a": 1, "b": 2 }));
    /// let said = Message::assistant("Let me add.").with_part(Part::ToolCall(call));
    /// let response = ModelResponse::new(said).with_usage(Usage::new(12, 1)).with_text("One moment.");
    /// assert_eq!(response.message().text(), "One moment.");
    /// assert_eq!(response.message().tool_calls().count(), 1);
    /// assert_eq!(response.usage().total(), 13);
    /// ```
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        let parts = self.message.parts_mut();
        let first_text = parts.iter().position(|part| matches!(part, Part::Text(_)));
        // The first text part is changed, not replaced: it keeps its provider data.
        let mut text_part = match first_text {
            Some(index) => parts[index].clone(),
            None => Part::from_text(""),
        };
        if let Part::Text(part) = &mut text_part {
            part.text = text.into();
        }
        // Before the calls, where models put their text: some protocols have no text after a call.
        let first_call = parts
            .iter()
            .position(|part| matches!(part, Part::ToolCall(_)));
        let index = first_text.or(first_call).unwrap_or(parts.len());
        parts.retain(|part| !matches!(part, Part::Text(_)));
        parts.insert(index, text_part);
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn with_tool_call(mut self, call: ToolCall) -> Self {
        self.message.parts_mut().push(Part::ToolCall(call));
        self
    }

    /// Removes the tool calls. If an `after_model` returns the result, the model's tool calls are
    /// dropped as well.
    ///
    /// ```
    /// use tower_agent::{Action, ModelResponse};
    /// use tower_agent::callback::after_model;
    ///
    /// // The run ends with this, whatever the model asks for.
    /// let closed = after_model(|_, response| match response.message().tool_calls().next() {
    ///     Some(_) => Action::Respond(ModelResponse::from_text("Not today.").without_tool_calls()),
    ///     None => Action::Continue,
    /// });
    /// # drop(closed);
    /// ```
    #[must_use]
    pub fn without_tool_calls(mut self) -> Self {
        self.drop_tool_calls();
        // From here on the response says that there are no calls: `stand_for` must not add them.
        self.is_bare = false;
        self
    }

    /// Lets the agent ask its model again: this message follows the response in the transcript, and
    /// the loop goes on with the next model call, which counts like any other. Tool calls of the
    /// response are dropped. A later callback that replaces the response does not undo it.
    ///
    /// ```
    /// use tower_agent::{Action, Agent, Message};
    /// use tower_agent::callback::after_model;
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let model = ScriptedModel::new(["Oslo, I think.", "Oslo."].map(Turn::from_text));
    /// let agent = Agent::builder(model)
    ///     .on_model(after_model(|_, response| match response.text() {
    ///         text if text.contains("I think") => {
    ///             Action::Respond(response.clone().then_ask(Message::user("Are you sure?")))
    ///         }
    ///         _ => Action::Continue,
    ///     }))
    ///     .build()?;
    /// let response = agent.run("What is the capital of Norway?").await?;
    /// assert_eq!(response.text(), "Oslo.");
    /// assert_eq!(response.new_messages().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn then_ask(mut self, message: Message) -> Self {
        self.again = Some(Box::new(message));
        self
    }

    /// Sets the finish reason, which is kept with the message. Whether it is
    /// [`Stop`](FinishReason::Stop) or [`ToolCalls`](FinishReason::ToolCalls) is left to the
    /// message, which has tool calls or none.
    #[must_use]
    pub fn with_finish_reason(mut self, reason: FinishReason) -> Self {
        self.message.set_finish_reason(reason);
        self
    }

    /// Sets the token usage.
    ///
    /// What a run has used is counted by responses. A layer inside an agent's model that makes a
    /// response anew, with the usage of the one that it had, is counted as another attempt: change
    /// the response that it had.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the provider's metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = (!metadata.is_empty()).then(|| Arc::new(metadata));
        self
    }

    /// Returns the text of the [message](Self::message).
    #[must_use]
    pub fn text(&self) -> String {
        self.message.text()
    }

    /// Returns the message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    pub(crate) fn into_message(self) -> Message {
        self.message
    }

    /// Returns the message, to change it.
    pub fn message_mut(&mut self) -> &mut Message {
        &mut self.message
    }

    /// Returns the finish reason: that of the [message](Message::finish_reason).
    #[must_use]
    pub fn finish_reason(&self) -> &FinishReason {
        self.message.finish_reason()
    }

    /// Returns the token usage.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the provider's metadata, such as headers and the request id.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        static UNKNOWN: LazyLock<Metadata> = LazyLock::new(Metadata::default);
        self.metadata.as_deref().unwrap_or_else(|| &UNKNOWN)
    }

    /// Returns the number of the attempt that streamed this response, if it was streamed.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    /// Streams the response as one attempt, and returns it with the number of that attempt, for a
    /// layer that answers a call without the model. Without a `sender` nothing is streamed.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tower_agent::ModelResponse;
    /// use tower_agent::stream::{self, EventKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tower_agent::Result<()> {
    /// let (sender, mut events) = stream::channel(8);
    /// let response = ModelResponse::from_text("Oslo").streamed_to(Some(&sender)).await?;
    /// assert_eq!(response.attempt(), Some(0));
    /// let first = events.next().await.map(|event| event.kind);
    /// assert!(matches!(first, Some(EventKind::TextStart { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Attempt::send`](crate::stream::Attempt::send) does.
    pub async fn streamed_to(mut self, sender: Option<&DeltaSender>) -> Result<Self> {
        // The number of an earlier stream means nothing in this one.
        self.attempt = None;
        if let Some(sender) = sender {
            let mut attempt = sender.open();
            for part in self.message.parts() {
                attempt.send(part.clone()).await?;
            }
            self.attempt = attempt.finish().await?.attempt;
        }
        Ok(self)
    }

    /// Returns where the response came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Sets the number of the [attempt](crate::stream::Streamed::attempt) that streamed this
    /// response, for a layer that has streamed it itself; otherwise use
    /// [`streamed_to`](Self::streamed_to).
    #[must_use]
    pub fn with_attempt(mut self, attempt: Option<u32>) -> Self {
        self.attempt = attempt;
        self
    }

    /// Returns whether a callback returned it, or the response that it replaces, instead of the
    /// model.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.is_given
    }

    pub(crate) fn seen(&self) -> SeenModelResponse {
        SeenModelResponse {
            message: self.message.clone(),
            usage: self.usage,
            metadata: self.metadata.clone(),
            asks_again: self.asks_again(),
        }
    }

    fn has_tool_calls(&self) -> bool {
        self.message.tool_calls().next().is_some()
    }

    pub(crate) fn drop_tool_calls(&mut self) {
        // Checked first, because changing a shared message copies it.
        if self.has_tool_calls() {
            let parts = self.message.parts_mut();
            parts.retain(|part| !matches!(part, Part::ToolCall(_)));
        }
    }

    /// Returns whether the model is [asked again](Self::then_ask).
    #[must_use]
    pub fn asks_again(&self) -> bool {
        self.again.is_some()
    }

    pub(crate) fn take_again(&mut self) -> Option<Message> {
        self.again.take().map(|again| *again)
    }

    /// Marks it as counted; returns whether it was not before.
    pub(super) fn count(&mut self) -> bool {
        self.counted.set()
    }

    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
        // Kept through later replacements: the loop's rules ask whether the model itself was
        // called.
        self.is_given |= matches!(origin, Origin::Before | Origin::Fallback);
    }

    /// Marks it as complete by itself: it replaces no other response.
    pub(super) fn stand_alone(&mut self) {
        self.is_bare = false;
    }

    /// Marks it as the replacement of `replaced`. If it was created from nothing and has no tool
    /// calls of its own, it takes over those of `replaced` with their related parts, unless
    /// `is_all`.
    pub(super) fn stand_for(&mut self, replaced: &Self, is_all: bool) {
        self.is_given |= replaced.is_given;
        self.counted.take_over(replaced.counted);
        if self.again.is_none() {
            self.again.clone_from(&replaced.again);
        }
        let is_bare = std::mem::take(&mut self.is_bare);
        // A response that has calls of its own, or says that there are none, stands as it is.
        if is_all || !is_bare || self.has_tool_calls() || !replaced.has_tool_calls() {
            return;
        }
        // A callback that only rewrites the text would otherwise drop the calls that the model
        // made. Reasoning stays with them, since providers reject calls that lack their signed
        // reasoning.
        let mut message = replaced.message.clone();
        let parts = message.parts_mut();
        parts.retain(|part| !matches!(part, Part::Text(_)));
        let first_call = parts
            .iter()
            .position(|part| matches!(part, Part::ToolCall(_)));
        let index = first_call.unwrap_or(parts.len());
        parts.splice(index..index, self.message.parts().iter().cloned());
        self.message = message;
    }
}

impl From<Streamed> for ModelResponse {
    fn from(streamed: Streamed) -> Self {
        Self {
            attempt: streamed.attempt,
            ..Self::new(streamed.message)
        }
    }
}
