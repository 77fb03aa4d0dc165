use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{AgentResponse, Checkpoint};
use crate::call::{CallKind, Origin};
use crate::context::{RunContext, State};
use crate::error::Resolution;
use crate::extensions::Extensions;
use crate::message::{Message, Messages};
use crate::model::Settings;
use crate::request::Request;
use crate::tool::ToolSet;

/// What an agent is asked. Cloning is O(1).
///
/// A clone belongs to the same run: a layer that calls the agent again continues it, with its
/// state and its latched endings. A new request starts a new run.
///
/// ```
/// use serde_json::json;
/// use tower_agent::{AgentRequest, Message, Settings, State};
///
/// let mut settings = Settings::default();
/// settings.temperature = Some(0.0);
///
/// let request = AgentRequest::new("And in Oslo?")
///     .with_history([Message::user("Rain in Rome?"), Message::assistant("No.")])
///     .with_state(State::from_iter([("units".to_owned(), json!("metric"))]))
///     .with_settings(settings);
/// assert_eq!(request.messages().len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct AgentRequest {
    messages: Messages,
    settings: Arc<Settings>,
    tools: ToolSet,
    extensions: Extensions,
    context: RunContext,
    /// What `after_agent` responds with is all that the agent has said.
    after_says_all: bool,
    takes_turn: bool,
}

impl AgentRequest {
    /// The user says `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self::conversation([Message::user(text)])
    }

    /// Continues a conversation as it stands.
    ///
    /// One that ends in unanswered tool calls resumes with those calls; [`resume`](Self::resume)
    /// does more.
    #[must_use]
    pub fn conversation(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// Resumes a run that was [interrupted](super::End::Interrupted), in this process or another.
    ///
    /// Give it the answers [with](Self::with_resolutions) it, and the session's
    /// [state](Self::with_state), which is kept apart. What is not answered is waited for again.
    /// The run is a new one for its callbacks: `before_agent` is asked as in any run.
    #[must_use]
    pub fn resume(checkpoint: Checkpoint) -> Self {
        let context = RunContext::default().with_suspended(checkpoint.suspended);
        Self::conversation(checkpoint.messages).with_context(context)
    }

    /// The same request with answers to what the run before waited for, for every agent of the
    /// tree to [see](RunContext::resolution). They add to those it has; of two to one question
    /// the later stands.
    #[must_use]
    pub fn with_resolutions(mut self, resolutions: impl IntoIterator<Item = Resolution>) -> Self {
        self.context = self.context.with_resolutions(resolutions);
        self
    }

    /// The same request with earlier messages before its own. A shared history is not copied.
    #[must_use]
    pub fn with_history(mut self, history: impl Into<Messages>) -> Self {
        let new = std::mem::replace(&mut self.messages, history.into());
        self.messages.extend(new.iter().cloned());
        self
    }

    /// The same request with settings that win over the agent's.
    #[must_use]
    pub fn with_settings(mut self, settings: impl Into<Arc<Settings>>) -> Self {
        self.settings = settings.into();
        self
    }

    /// The same request with tools for this run, beside those of the agent: of whoever asks, such
    /// as a front end's. Members of a team and sub-agents that take over have them, too.
    ///
    /// A tool by the name of one of the agent's own fails the run, as an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    #[must_use]
    pub fn with_tools(mut self, tools: ToolSet) -> Self {
        self.tools = tools;
        self
    }

    /// The same request with the session's state.
    #[must_use]
    pub fn with_state(mut self, state: State) -> Self {
        self.context = self.context.with_state(state);
        self
    }

    /// The same request with a token that cancels its run.
    #[must_use]
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.context = self.context.with_cancellation(token);
        self
    }

    /// The same request with a name for its run, in place of a random one.
    #[must_use]
    pub fn with_run_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.context = self.context.with_run_id(id.into());
        self
    }

    /// The same request as part of another call's run, for an agent that works for another.
    #[must_use]
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }

    /// The same request, whose `after_agent` says all or replaces the last words.
    pub(crate) fn with_after_says_all(mut self, all: bool) -> Self {
        self.after_says_all = all;
        self
    }

    /// The request for another agent that goes on with the conversation in this one's run.
    pub(crate) fn hand_over(&self, messages: Messages) -> Self {
        let (extensions, takes_turn) = (Extensions::new(), true);
        Self { messages, extensions, takes_turn, ..self.clone() }
    }

    /// Whether the agent is to speak even if the conversation ends with an answer: another's.
    pub(crate) fn takes_turn(&self) -> bool {
        self.takes_turn
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// The conversation so far, to change.
    pub fn messages_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// Settings that win over the agent's.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Settings that win over the agent's, to change.
    pub fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// Tools for this run, beside those of the agent.
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.tools
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

impl Request for AgentRequest {
    type Response = AgentResponse;
    const CALL: CallKind = CallKind::Agent;

    fn context(&self) -> &RunContext {
        &self.context
    }

    fn is_changed_from(&self, earlier: &Self) -> bool {
        self.messages != earlier.messages
            || self.settings != earlier.settings
            || self.tools.declarations() != earlier.tools.declarations()
    }

    /// If somebody watches the run: an agent shows what happens in it from the start.
    fn is_committed(&self) -> bool {
        self.context.outlet().is_some()
    }

    fn mark(&self, response: &mut AgentResponse, replaced: Option<&AgentResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.set_origin(origin);
        }
        match replaced {
            Some(replaced) => response.stand_for(replaced, self.after_says_all),
            None => response.continue_from(&self.messages, &self.context),
        }
    }
}

impl From<&str> for AgentRequest {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for AgentRequest {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<Messages> for AgentRequest {
    fn from(messages: Messages) -> Self {
        Self::conversation(messages)
    }
}
