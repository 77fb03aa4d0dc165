use std::sync::Arc;

use super::response::ModelResponse;
use super::seen::SeenModelRequest;
use super::settings::Settings;
use super::written::{Earlier, Written};
use crate::call::{Attempts, CallKind, Description, Extensions, Origin, Request};
use crate::context::RunContext;
use crate::error::Result;
use crate::message::{MessageId, Messages, Metadata, NoAnswer, Usage};
use crate::stream::{ConsumerWait, DeltaSender, Mapper, PromptPart};
use crate::tool::ToolDeclaration;

/// The request of a model call. Cloning is O(1).
///
/// ```
/// use tower_agent::{Message, ModelRequest};
///
/// let mut request = ModelRequest::new([Message::user("Name a colour.")]);
/// request.settings_mut().temperature = Some(1.0);
/// request.add_instructions("Answer with one word.");
/// assert_eq!(request.messages().len(), 1);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ModelRequest {
    instructions: Option<Arc<str>>,
    messages: Messages,
    tools: Arc<Vec<Arc<ToolDeclaration>>>,
    settings: Arc<Settings>,
    pub(crate) sink: Option<DeltaSender>,
    extensions: Extensions,
    context: RunContext,
    /// The id of the response, in a run.
    response_id: Option<MessageId>,
    /// A response from `after_model` replaces the whole response, tool calls included.
    pub(crate) after_replaces_all: bool,
    /// A tool gives the final answer of the run.
    pub(crate) is_answered_by_tool: bool,
    /// The keys of the state whose values are in the instructions.
    pub(crate) shown_state: Option<Arc<[String]>>,
    /// Nothing is between the callbacks at the edges of the call.
    is_direct: bool,
    earlier: Earlier,
    attempts: Attempts,
}

impl ModelRequest {
    /// Creates a request in a new run of its own.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self {
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// Creates a request of a run without defaults that would be replaced anyway. `written` is the
    /// cache of the loop that the request belongs to.
    #[inline]
    pub(crate) fn in_run(
        context: &RunContext,
        instructions: Option<Arc<str>>,
        messages: Messages,
        response_id: &MessageId,
        tools: &Arc<Vec<Arc<ToolDeclaration>>>,
        settings: &Arc<Settings>,
        written: &Written,
    ) -> Self {
        Self {
            instructions,
            messages,
            tools: tools.clone(),
            settings: settings.clone(),
            sink: None,
            extensions: Extensions::new(),
            context: context.clone(),
            response_id: Some(response_id.clone()),
            after_replaces_all: false,
            is_answered_by_tool: false,
            shown_state: None,
            is_direct: false,
            // Weak: a request that a callback keeps does not keep the serialised messages alive.
            earlier: written.into(),
            attempts: Attempts::in_stack(),
        }
    }

    /// Sets the run that the request belongs to.
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }

    /// Sets the available tools.
    pub fn with_tools(mut self, tools: Arc<Vec<Arc<ToolDeclaration>>>) -> Self {
        self.tools = tools;
        self
    }

    /// Sets the settings.
    pub fn with_settings(mut self, settings: impl Into<Arc<Settings>>) -> Self {
        self.settings = settings.into();
        self
    }

    /// Sets the sink that the deltas are streamed to.
    pub fn with_delta_sender(mut self, sink: impl Into<Option<DeltaSender>>) -> Self {
        self.sink = sink.into();
        self
    }

    /// Gives the response of this call the id that it will have in the transcript. Without it, the
    /// agent does so once the outermost layer has returned it: for a layer that stores responses,
    /// so that a run that is made again has the same ids.
    pub fn identify(&self, response: &mut ModelResponse) {
        // In a stream the id depends on the attempt that the consumer saw, so the sink knows it.
        match (&self.sink, &self.response_id) {
            (Some(sink), _) => sink.identify(response.message_mut()),
            (None, Some(id)) if response.message().id().is_none() => {
                response.message_mut().set_id(id.clone());
            }
            (None, _) => {}
        }
    }

    /// Returns the id that the response will have in the transcript, unless it has one of its own.
    /// `None` outside a run.
    ///
    /// In a stream, the id of a later attempt ends in its number: the [place](MessageId::place) of
    /// both is the same.
    #[must_use]
    pub fn response_id(&self) -> Option<&MessageId> {
        self.response_id.as_ref()
    }

    pub(crate) fn context_mut(&mut self) -> &mut RunContext {
        &mut self.context
    }

    /// Returns the first part of the prompt that a `later` request does not repeat: a provider's
    /// cached prefix ends there. New messages may be appended.
    ///
    /// ```
    /// use tower_agent::stream::PromptPart;
    /// use tower_agent::{Message, ModelRequest};
    ///
    /// let first = ModelRequest::new([Message::user("Hello.")]);
    /// let mut second = first.clone();
    /// second.messages_mut().push(Message::assistant("Hello. How can I help?"));
    /// assert_eq!(first.changed_in_prompt(&second), None);
    ///
    /// second.add_instructions("Be brief.");
    /// assert_eq!(first.changed_in_prompt(&second), Some(PromptPart::Instructions));
    /// ```
    #[must_use]
    pub fn changed_in_prompt(&self, later: &Self) -> Option<PromptPart> {
        self.seen().changed_in_prompt(&later.seen())
    }

    pub(crate) fn seen(&self) -> SeenModelRequest {
        SeenModelRequest {
            instructions: self.instructions.clone(),
            messages: self.messages.clone(),
            tools: self.tools.clone(),
            settings: self.settings.clone(),
        }
    }

    /// Returns the system prompt.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Returns the keys of the [state](RunContext::state) whose values the agent's instructions
    /// were filled with, where the [semantics](crate::callback::LoopRules::placeholders) say so:
    /// these are not the program's own words.
    #[must_use]
    pub fn shown_state(&self) -> &[String] {
        self.shown_state.as_deref().unwrap_or_default()
    }

    /// Returns the key of the state under which the agent that makes this call keeps
    /// [what its model says](crate::AgentBuilder::output_key), if there is one.
    #[must_use]
    pub fn output_key(&self) -> Option<&str> {
        self.context.scope().settings.output_key.as_deref()
    }

    /// Returns whether nothing is between the callbacks at the
    /// [edges](crate::callback::Bundle::edges_of_model) of this call: the model receives the
    /// request as the outer one leaves it, and what that sees next is the model's own answer or
    /// error.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Replaces the system prompt; `None` removes it.
    pub fn set_instructions(&mut self, instructions: Option<Arc<str>>) {
        self.instructions = instructions;
    }

    /// Appends a paragraph to the system prompt.
    pub fn add_instructions(&mut self, more: &str) {
        self.instructions = Some(match &self.instructions {
            Some(text) => format!("{text}\n\n{more}").into(),
            None => more.into(),
        });
    }

    /// Returns the conversation.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Returns the conversation, to change it for this call. The agent's transcript is unaffected.
    pub fn messages_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// Appends the messages to a request's body, in the format of a protocol.
    ///
    /// `write` appends one message, given by its index. It is called only for messages that no
    /// earlier model call of the agent's run has serialised at this position; the bytes of the
    /// others are copied. A body therefore starts with the bytes of the previous body, and costs
    /// only its new messages. The bytes are kept under the name of the protocol until the run ends.
    ///
    /// The output of `write` may depend only on the messages up to its own. Prefix `protocol` with
    /// the name of your crate.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Message, ModelRequest};
    ///
    /// let request = ModelRequest::new([Message::user("Hi."), Message::assistant("Hello.")]);
    /// let mut body = Vec::new();
    /// request.write_messages("my_crate.lines", &mut body, |index, body| {
    ///     let message = &request.messages()[index];
    ///     serde_json::to_writer(&mut *body, &json!([message.role(), message.text()]))?;
    ///     body.push(b'\n');
    ///     Ok(())
    /// })?;
    /// assert_eq!(body, b"[\"user\",\"Hi.\"]\n[\"assistant\",\"Hello.\"]\n");
    /// # Ok::<_, tower_agent::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn write_messages(
        &self,
        protocol: &'static str,
        body: &mut Vec<u8>,
        write: impl FnMut(usize, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.earlier
            .write_messages(protocol, &self.messages, body, write)
    }

    /// Appends the available tools to a request's body, in the format of a protocol. `write`
    /// appends all of them; it is called once in an agent's run for the same list, as in
    /// [`write_messages`](Self::write_messages).
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn write_tools(
        &self,
        protocol: &'static str,
        body: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.earlier.write_tools(protocol, &self.tools, body, write)
    }

    /// Returns the available tools.
    #[must_use]
    pub fn tools(&self) -> &[Arc<ToolDeclaration>] {
        &self.tools
    }

    /// Returns the available tools, to change them for this call.
    pub fn tools_mut(&mut self) -> &mut Vec<Arc<ToolDeclaration>> {
        Arc::make_mut(&mut self.tools)
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the settings, to change them for this call.
    pub fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// Returns the sink to stream deltas to, if the call is streamed.
    #[must_use]
    pub fn delta_sender(&self) -> Option<&DeltaSender> {
        self.sink.as_ref()
    }

    /// Adds a [`Mapper`] that observes or changes the deltas before the consumer sees them.
    /// `factory` creates one for each attempt at this call. Has no effect on a call that is not
    /// streamed.
    ///
    /// Meant for a `before`. Mappers of the innermost band act first; within a band they act in the
    /// order in which they were added.
    pub fn map_deltas<M: Mapper>(&mut self, factory: impl Fn() -> M + Send + Sync + 'static) {
        if let Some(sink) = &mut self.sink {
            sink.map(factory);
        }
    }

    /// Returns the data attached to this call.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the data attached to this call, to change it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

impl Request for ModelRequest {
    type Response = ModelResponse;
    const CALL: CallKind = CallKind::Model;

    fn context(&self) -> &RunContext {
        &self.context
    }

    fn usage(response: &ModelResponse) -> Usage {
        response.usage()
    }

    fn metadata(response: &ModelResponse) -> Option<&Metadata> {
        Some(response.metadata())
    }

    fn no_answer(response: &ModelResponse) -> Option<NoAnswer> {
        response.no_answer()
    }

    fn count(response: &mut ModelResponse) -> bool {
        response.count()
    }

    fn attempts(&mut self) -> Option<&mut Attempts> {
        Some(&mut self.attempts)
    }

    fn describe_attempt(&self) -> Description {
        Some(self.settings.clone())
    }

    fn refusal(&self, reason: impl Into<String>) -> Result<ModelResponse> {
        // In place of a response with tool calls, it must not take these over.
        Ok(ModelResponse::from_text(reason).without_tool_calls())
    }

    fn is_committed(&self) -> bool {
        self.sink.as_ref().is_some_and(DeltaSender::is_committed)
    }

    fn is_changed_from(&self, earlier: &Self) -> bool {
        // Without the sink, the extensions and the context: the model does not see them.
        self.messages != earlier.messages
            || self.instructions != earlier.instructions
            || self.settings != earlier.settings
            || self.tools != earlier.tools
    }

    fn delta_sender(&self) -> Option<&DeltaSender> {
        self.sink.as_ref()
    }

    fn consumer_wait(&self) -> ConsumerWait {
        match &self.sink {
            Some(sink) => sink.consumer_wait(),
            None => self.context.listeners().consumer_wait(),
        }
    }

    fn enter_band(&mut self) {
        // Mappers added from here on act before those of the bands around this one.
        if let Some(sink) = &mut self.sink {
            sink.begin_frame();
        }
    }

    fn set_direct(&mut self, is_direct: bool) {
        self.is_direct = is_direct;
    }

    fn mark_guarded(&self, response: &mut ModelResponse) {
        response.stand_alone();
    }

    fn mark(&self, response: &mut ModelResponse, replaced: Option<&ModelResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.set_origin(origin);
        }
        // Neither a callback nor a replay has reached a target. What an `after` returns stands for
        // the response that it replaces.
        if matches!(origin, Origin::Before | Origin::Fallback | Origin::Replay) {
            response.count();
        }
        match replaced {
            Some(replaced) => response.stand_for(replaced, self.after_replaces_all),
            None => response.stand_alone(),
        }
    }
}
