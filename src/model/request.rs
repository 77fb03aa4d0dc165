use std::sync::Arc;

use super::{ModelResponse, Settings};
use crate::call::{CallKind, Origin};
use crate::context::RunContext;
use crate::extensions::Extensions;
use crate::message::Messages;
use crate::request::Request;
use crate::stream::{DeltaSender, Mapper, ReaderWait};
use crate::tool::ToolDeclaration;

/// What a model is asked. Cloning is O(1).
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
pub struct ModelRequest {
    instructions: Option<Arc<str>>,
    messages: Messages,
    tools: Arc<Vec<Arc<ToolDeclaration>>>,
    settings: Arc<Settings>,
    sink: Option<DeltaSender>,
    extensions: Extensions,
    context: RunContext,
    /// What `after_model` responds with is all that is answered.
    after_replaces_all: bool,
}

impl ModelRequest {
    /// A request in a run of its own.
    #[must_use]
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// A request of a run, with nothing made only to be replaced.
    pub(crate) fn in_run(
        context: RunContext,
        messages: Messages,
        tools: Arc<Vec<Arc<ToolDeclaration>>>,
        settings: Arc<Settings>,
    ) -> Self {
        Self { messages, tools, settings, context, ..Self::default() }
    }

    /// The same request as part of a run.
    #[must_use]
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }

    /// The same request with these tools on offer.
    #[must_use]
    pub fn with_tools(mut self, tools: Arc<Vec<Arc<ToolDeclaration>>>) -> Self {
        self.tools = tools;
        self
    }

    /// The same request with these settings.
    #[must_use]
    pub fn with_settings(mut self, settings: impl Into<Arc<Settings>>) -> Self {
        self.settings = settings.into();
        self
    }

    /// The same request, to be streamed.
    #[must_use]
    pub fn with_delta_sender(mut self, sink: impl Into<Option<DeltaSender>>) -> Self {
        self.sink = sink.into();
        self
    }

    pub(crate) fn set_after_replaces_all(&mut self, all: bool) {
        self.after_replaces_all = all;
    }

    /// What the model is told before the conversation: the system prompt.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Tells the model something else before the conversation; `None` tells it nothing.
    pub fn set_instructions(&mut self, instructions: Option<Arc<str>>) {
        self.instructions = instructions;
    }

    /// Tells the model one thing more before the conversation.
    pub fn add_instructions(&mut self, more: &str) {
        self.instructions = Some(match &self.instructions {
            Some(text) => format!("{text}\n\n{more}").into(),
            None => more.into(),
        });
    }

    /// The conversation.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// The conversation, to change for this call. The agent's transcript keeps its own.
    pub fn messages_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// The tools on offer.
    #[must_use]
    pub fn tools(&self) -> &[Arc<ToolDeclaration>] {
        &self.tools
    }

    /// The tools on offer, to change for this call.
    pub fn tools_mut(&mut self) -> &mut Vec<Arc<ToolDeclaration>> {
        Arc::make_mut(&mut self.tools)
    }

    /// How to answer.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How to answer, to change for this call.
    pub fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// Where to stream the answer, if somebody wants to see it while it is written.
    #[must_use]
    pub fn delta_sender(&self) -> Option<&DeltaSender> {
        self.sink.as_ref()
    }

    /// Sees or changes the answer's deltas before whoever watches does; `factory` makes a
    /// [`Mapper`] for each attempt at this call. Does nothing for a call that is not streamed.
    ///
    /// For a `before`: mappers of the innermost band act first, those of one band in the order in
    /// which they are given.
    pub fn map_deltas<M: Mapper>(&mut self, factory: impl Fn() -> M + Send + Sync + 'static) {
        if let Some(sink) = &mut self.sink {
            sink.map(factory);
        }
    }

    /// Data of this call.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Data of this call, to change.
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

    fn is_committed(&self) -> bool {
        self.sink.as_ref().is_some_and(DeltaSender::is_committed)
    }

    fn is_changed_from(&self, earlier: &Self) -> bool {
        self.messages != earlier.messages
            || self.instructions != earlier.instructions
            || self.settings != earlier.settings
            || self.tools != earlier.tools
    }

    fn reader_wait(&self) -> ReaderWait {
        match &self.sink {
            Some(sink) => sink.reader_wait(),
            None => self.context.reader_wait(),
        }
    }

    fn enter_band(&mut self) {
        if let Some(sink) = &mut self.sink {
            sink.begin_frame();
        }
    }

    fn mark_guarded(&self, response: &mut ModelResponse) {
        response.stand_alone();
    }

    fn mark(&self, response: &mut ModelResponse, replaced: Option<&ModelResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.set_origin(origin);
        }
        match replaced {
            Some(replaced) => response.stand_for(replaced, self.after_replaces_all),
            None => response.stand_alone(),
        }
    }
}
