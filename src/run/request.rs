use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{AgentResponse, Checkpoint};
use crate::call::Extensions;
use crate::call::Request;
use crate::call::{CallKind, Origin};
use crate::context::{Joined, Record, RunContext, State};
use crate::error::{Resolution, Result};
use crate::message::{Message, Messages};
use crate::model::Settings;
use crate::tool::ToolSet;

/// What an agent is asked. Cloning is O(1).
///
/// A clone belongs to the same run: a layer that calls the agent again continues it, with its
/// state and its latched endings. If the first call failed, the second goes on where that one
/// stopped, so that no tool runs twice; after an agent's answer it begins anew. A layer inside an
/// agent's stack that makes the same call again goes on in any case; one that asks something else
/// after an answer begins anew. A new request starts a new run, and so does a clone that is given a state, a token, a run id or
/// resolutions.
///
/// # Inside another run
///
/// A request with a [context](Self::with_context) is part of that run, whatever is set on it and in
/// whatever order:
///
/// | set | inside another run |
/// |---|---|
/// | resolutions | add to those of the run, for this agent and those that work for it |
/// | a token | ends this agent; the run's token does so as well |
/// | a state, a run id, a checkpoint with private state | fail the call as an [`InvalidRequest`](crate::ErrorKind::InvalidRequest): these are the whole run's |
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
    run: Joined,
    record: Record,
    joins_at: Option<usize>,
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
    /// does more. Any other begins with the model, also one that ends in an answer.
    ///
    /// The model is asked about a whole conversation, in which every call has one answer right
    /// behind it: calls that were left open get one that says so, which the run's stream tells as
    /// any other; late answers move to their calls; what answers no call, or answers again, becomes
    /// the user's words.
    #[must_use]
    pub fn conversation(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// Goes on with a conversation, however its last run ended, in this process or another.
    ///
    /// Give it the user's [next message](Self::with_message), or the
    /// [answers](Self::with_resolutions) that the run waits for, and the session's
    /// [state](Self::with_state), which is kept apart. What is not answered is waited for again. A
    /// run that failed goes on behind the last thing that it did. The run is a new one for its
    /// callbacks: `before_agent` is called as in any run.
    #[must_use]
    pub fn resume(checkpoint: Checkpoint) -> Self {
        let Checkpoint { messages, turn, suspended, private_state, .. } = checkpoint;
        let record = Record::resuming(messages.clone(), suspended).at_turn(turn);
        let mut run = Joined::default();
        if !private_state.is_empty() {
            run.set_private_state(private_state.into());
        }
        Self { messages, run, record, ..Self::default() }
    }

    /// Adds a message, such as the user's next one.
    ///
    /// Tool calls that a [resumed](Self::resume) run has left open stay so only until the user
    /// speaks.
    ///
    /// ```
    /// use tower_agent::{AgentRequest, Checkpoint, Message};
    ///
    /// let request = AgentRequest::resume(Checkpoint::default()).with_message("How are you?");
    /// assert_eq!(request.messages()[0], Message::user("How are you?"));
    /// ```
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Message>) -> Self {
        self.messages.push(message.into());
        if self.joins_at.is_none() {
            self.record = self.record.with_messages(&self.messages);
        }
        self
    }

    /// Answers an open tool call in its tool's place, as [`Messages::answer`] does.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) when no call of this id is open.
    pub fn with_answer(mut self, id: &str, value: impl Into<Value>) -> Result<Self> {
        self.messages.answer(id, value)?;
        self.record = self.record.with_messages(&self.messages);
        Ok(self)
    }

    /// The same request with answers to what the run before waited for, for every agent of the
    /// tree to [see](RunContext::resolution). They add to those it has; of two to one question
    /// the later stands.
    #[must_use]
    pub fn with_resolutions(mut self, resolutions: impl IntoIterator<Item = Resolution>) -> Self {
        self.run.add_resolutions(resolutions);
        self.in_another_run()
    }

    /// The run is another one than that of the request this was cloned from.
    fn in_another_run(mut self) -> Self {
        (self.record, self.joins_at) = (self.record.anew(), None);
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
        self.run.set_state(state);
        self.in_another_run()
    }

    /// The same request with a token that cancels its run.
    #[must_use]
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.run.set_token(token);
        self.in_another_run()
    }

    /// The same request with a name for its run, in place of a random one.
    ///
    /// A run whose id is longer than 1024 bytes fails with
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest): every event has it.
    #[must_use]
    pub fn with_run_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.run.set_run_id(id.into());
        self.in_another_run()
    }

    /// The same request as part of another call's run, for an agent that works for another. It
    /// stays in it, [whatever else is set](Self#inside-another-run).
    #[must_use]
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.run.join(context);
        self.in_another_run()
    }

    /// The same request in an agent's own part of its run.
    pub(crate) fn entered(mut self, context: RunContext) -> Self {
        self.run = Joined::to(context);
        self
    }

    /// The same request, of an agent that writes down here what is said.
    pub(crate) fn with_record(mut self, record: Record) -> Self {
        (self.record, self.joins_at) = (record, None);
        self
    }

    /// Where the agent that is asked writes down what is said.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The same request, whose `after_agent` says all or replaces the last words.
    pub(crate) fn with_after_says_all(mut self, all: bool) -> Self {
        self.after_says_all = all;
        self
    }

    /// The request for another agent that goes on with the conversation in this one's run.
    pub(crate) fn hand_over(&self, messages: Messages) -> Self {
        let (extensions, takes_turn) = (Extensions::new(), true);
        let record = self.context().record().clone();
        let joins_at = Some(record.len());
        Self { messages, extensions, takes_turn, record, joins_at, ..self.clone() }
    }

    /// At which message the agent comes into the very conversation of its caller, if it does.
    pub(crate) fn joins_at(&self) -> Option<usize> {
        self.joins_at
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
        self.run.context()
    }

    fn is_changed_from(&self, earlier: &Self) -> bool {
        self.messages != earlier.messages
            || self.settings != earlier.settings
            || self.tools.declarations() != earlier.tools.declarations()
    }

    /// If somebody watches the run: an agent shows what happens in it from the start.
    fn is_committed(&self) -> bool {
        self.context().emitter().is_some()
    }

    fn mark(&self, response: &mut AgentResponse, replaced: Option<&AgentResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.set_origin(origin);
        }
        match replaced {
            Some(replaced) => response.stand_for(replaced, self.after_says_all),
            None => response.continue_from(&self.messages, self.context()),
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
