use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::answer_format::AnswerFormat;
use super::guards::Guards;
use super::neighbours::Neighbours;
use super::response::AgentResponse;
use super::seen::SeenAgentRequest;
use crate::call::{CallKind, Extensions, Origin, Request};
use crate::context::{Joined, RunCallbacks, RunContext, State};
use crate::conversation::{Checkpoint, ConversationRecord, saved_with};
use crate::error::{Resolution, Result};
use crate::message::{Message, Messages};
use crate::model::Settings;
use crate::tool::ToolSet;

/// The request of an agent call. Cloning is O(1).
///
/// A clone belongs to the same run, with its state and its endings. If the first call of the
/// request failed, calling the agent again with a clone continues where that call stopped, so no
/// tool runs twice. If the first call succeeded, the second starts over. A layer inside the agent's
/// stack that repeats a call always continues; if it changes the conversation after a response, the
/// agent starts over. A new request starts a new run, and so does a clone with a new state, token,
/// run id or resolutions.
///
/// # Inside another run
///
/// A request with a [context](Self::with_context) is part of that run, whatever else is set, in any
/// order:
///
/// | set | effect inside another run |
/// |---|---|
/// | resolutions | are added to those of the run, for this agent and its sub-agents |
/// | a token | cancels this agent; the run's token cancels it as well |
/// | a state, a run id, a guard, a checkpoint with private state | fail the call as an [`InvalidRequest`](crate::ErrorKind::InvalidRequest): they belong to the whole run |
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
#[must_use]
pub struct AgentRequest {
    messages: Messages,
    settings: Arc<Settings>,
    tools: ToolSet,
    extensions: Extensions,
    pub(crate) callbacks: RunCallbacks,
    run: Joined,
    /// The record to which the agent writes its messages.
    pub(crate) record: ConversationRecord,
    /// The index at which the agent joins its caller's own conversation, if it does.
    pub(crate) joins_at: Option<usize>,
    /// A response from `after_agent` replaces all messages of the agent.
    pub(crate) after_says_all: bool,
    /// The agent calls the model even if the conversation ends with the message of another agent.
    pub(crate) takes_turn: bool,
    /// The agents around the called one, if another has transferred the conversation to it.
    pub(crate) neighbours: Option<Arc<Neighbours>>,
    pub(crate) is_for_team: bool,
    pub(crate) description: Option<Arc<str>>,
    answer_format: Option<AnswerFormat>,
}

impl AgentRequest {
    /// Creates a request with one user message.
    pub fn new(text: impl Into<String>) -> Self {
        Self::conversation([Message::user(text)])
    }

    /// Creates a request that continues a conversation.
    ///
    /// If it ends in open tool calls, the run starts with those calls; [`resume`](Self::resume)
    /// restores more. Any other conversation starts with a model call, even if it ends with an
    /// assistant message.
    ///
    /// The model receives a complete conversation, in which every tool call is directly followed by
    /// one result. Open calls get a result that says that their outcome is unknown, which the
    /// stream reports like any other; late results are moved to their calls, and the results of a
    /// turn are put in the order of its calls; results without a call, and second results, become
    /// user messages.
    pub fn conversation(messages: impl Into<Messages>) -> Self {
        Self {
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// Creates a request that resumes a conversation, however its last run ended, in this process
    /// or another.
    ///
    /// Add the [next message](Self::with_message) of the user or the
    /// [resolutions](Self::with_resolutions) of the run's interrupts, and the session's
    /// [state](Self::with_state), which is stored separately. Unanswered interrupts are raised
    /// again. A failed run continues after its last completed step. For callbacks this is a new
    /// run: `before_agent` runs as usual.
    pub fn resume(checkpoint: Checkpoint) -> Self {
        let Checkpoint { head, messages } = checkpoint;
        let record =
            ConversationRecord::resuming(messages.clone(), head.conversation).at_turn(head.turn);
        let mut run = Joined::default();
        if !head.private_state.is_empty() {
            run.give(|given| given.private_state = Some(head.private_state.into()));
        }
        Self {
            messages,
            run,
            record,
            ..Self::default()
        }
    }

    /// Adds a message, such as the user's next one.
    ///
    /// A user message closes the open tool calls of a [resumed](Self::resume) run. So resolutions
    /// in the same request have no effect: send them first, and the message with the next request.
    pub fn with_message(mut self, message: impl Into<Message>) -> Self {
        self.messages.push(message.into());
        // A member writes to the record of its team, which a message for this member must not
        // replace.
        if self.joins_at.is_none() {
            self.record = self.record.with_messages(&self.messages);
        }
        self
    }

    /// Adds the result of an open tool call that the caller executed, as [`Messages::answer`] does.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if no call with this id is
    /// open.
    pub fn with_answer(mut self, id: &str, value: impl Into<Value>) -> Result<Self> {
        self.messages.answer(id, value)?;
        self.record = self.record.with_messages(&self.messages);
        Ok(self)
    }

    /// Adds answers to the interrupts of the previous run; every agent of the tree can
    /// [see](RunContext::resolution) them. For duplicate ids, the last one wins.
    pub fn with_resolutions(mut self, resolutions: impl IntoIterator<Item = Resolution>) -> Self {
        self.add_resolutions(resolutions);
        self.in_another_run()
    }

    /// Adds answers as [`with_resolutions`](Self::with_resolutions) does, for a layer around the
    /// outermost agent: the request stays part of its run, streamed or not.
    ///
    /// ```
    /// use tower_agent::{AgentRequest, Request, Resolution};
    ///
    /// let mut request = AgentRequest::new("Hello.");
    /// let run = request.context().run_id().to_owned();
    /// request.add_resolutions([Resolution::cancelled("refund 7")]);
    /// assert_eq!(request.context().resolutions().len(), 1);
    /// assert_eq!(request.context().run_id(), run);
    /// ```
    pub fn add_resolutions(&mut self, resolutions: impl IntoIterator<Item = Resolution>) {
        self.run.add_resolutions(resolutions);
    }

    /// Starts a run other than that of the request this was cloned from.
    fn in_another_run(mut self) -> Self {
        self.record = self.record.anew();
        self.joins_at = None;
        self
    }

    /// Inserts earlier messages before the request's own. A shared history is not copied.
    pub fn with_history(mut self, history: impl Into<Messages>) -> Self {
        let new = std::mem::replace(&mut self.messages, history.into());
        self.messages.extend(new.iter().cloned());
        self
    }

    /// Inserts a saved conversation before the request's own messages: for a layer around the
    /// outermost agent that keeps conversations. The request stays part of its run, streamed or
    /// not, and is resumed as [`resume`](Self::resume) does.
    ///
    /// ```
    /// use tower_agent::{AgentRequest, Checkpoint, Message};
    ///
    /// let saved = Checkpoint::new([Message::user("I am Ada."), Message::assistant("Hello.")]);
    /// let request = AgentRequest::new("Who am I?").with_checkpoint(saved);
    /// assert_eq!(request.messages().len(), 3);
    /// ```
    pub fn with_checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        let Checkpoint { head, mut messages } = checkpoint;
        messages.extend(self.messages.iter().cloned());
        let record = &self.record;
        self.record = record.restart(messages.clone(), head.conversation, head.turn);
        self.messages = messages;
        // Changed in place: the request stays part of its run, which shares this state.
        let private = self.context().private_state();
        private.remove_all(|key| !head.private_state.contains_key(key));
        for (key, value) in head.private_state {
            private.set(key, value);
        }
        self
    }

    /// Returns the checkpoint of the run's progress so far, to [resume](Self::resume) from: for a
    /// layer around the outermost agent, after the agent's call has ended or was dropped.
    pub fn checkpoint(&self) -> Checkpoint {
        // An agent that was never called has recorded nothing: the progress is then the request.
        self.record.expect(&self.messages);
        self.context().scope().checkpoint(&self.record)
    }

    /// Returns how many of the messages, from the first on, are those that the [private
    /// state](RunContext::private_state) was saved with, and lets the checkpoints of this run say
    /// the same of theirs: for a callback of the outermost agent that keeps there what it knows
    /// about messages. 0 if no run before has asked.
    ///
    /// An id is not enough to find a message again: whoever chooses the [id of a
    /// run](Self::with_run_id) can choose one for two conversations, and put a message of one into
    /// the other. From here on the run gives no message an id that one of the request has. Takes
    /// time for each message, here and for each checkpoint.
    ///
    /// ```
    /// use tower_agent::callback::before_agent;
    /// use tower_agent::{Agent, AgentRequest, Message};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
    ///     .on_agent(before_agent(|request| {
    ///         request.count_saved();
    ///     }))
    ///     .build()?;
    ///
    /// let first = agent.run("Hi.").await?;
    /// let request = AgentRequest::resume(first.checkpoint()).with_message("And again.");
    /// assert_eq!(request.count_saved(), 2);
    /// let others = first.checkpoint().with_messages([Message::user("Hi."), Message::user("Bye.")]);
    /// assert_eq!(AgentRequest::resume(others).count_saved(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn count_saved(&self) -> usize {
        let context = self.context();
        context.scope().note_messages();
        self.record.note_taken(&self.messages);
        saved_with::count(context.private_state(), &self.messages)
    }

    /// Sets settings that override the agent's.
    pub fn with_settings(mut self, settings: impl Into<Arc<Settings>>) -> Self {
        self.settings = settings.into();
        self
    }

    /// Adds tools for this run to those of the agent, such as tools of the caller's front end.
    /// Members of a team and sub-agents that take over have them too.
    ///
    /// If a tool has the name of one of the agent's own, the run fails with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    pub fn with_tools(mut self, tools: ToolSet) -> Self {
        self.tools = tools;
        self
    }

    /// Sets the format of the final answer; `None` removes it.
    ///
    /// If the model's answer does not match, the model is told the problem and the schema as a user
    /// message of the same run, and answers again, up to a
    /// [limit](AnswerFormat::max_repairs). After that the run fails with
    /// [`InvalidAnswer`](crate::ErrorKind::InvalidAnswer).
    /// [`AgentResponse::parse`] returns the answer.
    ///
    /// In a team whose members run in turn, the last member gives the answer. A parallel team
    /// cannot: its members give several. A sub-agent that the conversation is transferred to gives
    /// it in place of the agent; one that is used as a tool does not.
    pub fn with_answer_format(mut self, format: impl Into<Option<AnswerFormat>>) -> Self {
        self.answer_format = format.into();
        self
    }

    /// Returns the format of the final answer, if there is one.
    #[must_use]
    pub fn answer_format(&self) -> Option<&AnswerFormat> {
        self.answer_format.as_ref()
    }

    /// Sets the session's state.
    pub fn with_state(mut self, state: State) -> Self {
        self.run.give(|given| given.state = Some(state));
        self.in_another_run()
    }

    /// Sets a token that cancels the run, or the part of a run that this request is for.
    ///
    /// What runs is dropped, and nothing more starts: each model, tool and agent asks the token
    /// before it is called, also in retries, and in calls that hooks make. The run fails with
    /// [`Cancelled`](crate::ErrorKind::Cancelled), whatever layers and callbacks make of that. The
    /// error's [checkpoint](crate::Error::checkpoint) is that of a run that was dropped: a resumed
    /// run makes the calls that were not made.
    ///
    /// To what is outside, a part of a run with a token of its own is a call that has failed.
    ///
    /// ```
    /// use tower_agent::{Agent, AgentRequest, CancellationToken, ErrorKind};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::builder(ScriptedModel::new([Turn::pending()])).build().unwrap();
    /// let stop = CancellationToken::new();
    /// let run = agent.run(AgentRequest::new("Go.").with_cancellation(stop.clone()));
    /// stop.cancel();
    /// assert_eq!(run.await.unwrap_err().kind(), ErrorKind::Cancelled);
    /// # }
    /// ```
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.run.give(|given| given.token = Some(token));
        self.in_another_run()
    }

    /// Gives the run a value of your own type, such as who the user is. Tools, callbacks, layers
    /// and sub-agents read it with [`RunContext::extension`]; a second value of one type replaces
    /// the first. Nothing in the run can change it, and neither the model nor a client sees it.
    ///
    /// It is not saved: give it again with the request that [resumes](Self::resume) a run. A layer
    /// around the agent may add it as well, since the request stays part of its run. Inside another
    /// run, it is for this agent and its sub-agents.
    ///
    /// ```
    /// use tower_agent::{AgentRequest, Request};
    ///
    /// #[derive(Debug, PartialEq)]
    /// enum Role {
    ///     Customer,
    ///     Clerk,
    /// }
    ///
    /// let request = AgentRequest::new("Pay me.").with_extension(Role::Customer);
    /// // In a tool, a callback or a layer:
    /// assert_eq!(request.context().extension::<Role>()?, &Role::Customer);
    /// # Ok::<_, tower_agent::Error>(())
    /// ```
    pub fn with_extension<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.run.give(|given| drop(given.extensions.insert(value)));
        self
    }

    /// Lets the conversation go on with this guard alone: an agent that is given a checkpoint of it
    /// refuses the run as an [`InvalidRequest`](crate::ErrorKind::InvalidRequest), before anything
    /// is called, unless the request has the guard as well. For a guard that comes with the
    /// request, as in its [callbacks](Self::with_global_callbacks): without it, the call that it
    /// has held back would be made. `why` says in the error what to do.
    ///
    /// ```
    /// use tower_agent::{Agent, AgentRequest};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello."))).build()?;
    /// let guarded = |request: AgentRequest| request.with_guard("audit", "resume it by the auditor");
    /// let checkpoint = agent.run(guarded(AgentRequest::new("Hi."))).await?.checkpoint();
    ///
    /// let plain = AgentRequest::resume(checkpoint.clone()).with_message("And again.");
    /// let error = agent.run(plain.clone()).await.unwrap_err();
    /// assert!(error.message().contains("resume it by the auditor"));
    /// agent.run(guarded(plain)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_guard(mut self, name: impl Into<String>, why: impl Into<String>) -> Self {
        self.run.give(|given| {
            let mut guards = given
                .extensions
                .get::<Guards>()
                .cloned()
                .unwrap_or_default();
            guards.0.push((name.into(), why.into()));
            drop(given.extensions.insert(guards));
        });
        self
    }

    /// Sets the run's id. Defaults to a random one.
    ///
    /// A run whose id is longer than 1024 bytes fails with
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), since every event contains it.
    pub fn with_run_id(mut self, id: impl Into<Arc<str>>) -> Self {
        let id = id.into();
        self.run.give(|given| given.id = Some(id));
        self.in_another_run()
    }

    /// Makes the request part of another call's run, for an agent that works for another. It stays
    /// part of it, [whatever else is set](Self#inside-another-run).
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.run.join(context);
        self.in_another_run()
    }

    pub(crate) fn enter(&mut self, context: RunContext) {
        self.run = Joined::to(context);
    }

    pub(crate) fn with_record(mut self, record: ConversationRecord) -> Self {
        self.record = record;
        self.joins_at = None;
        self
    }

    pub(crate) fn context_mut(&mut self) -> &mut RunContext {
        self.run.context_mut()
    }

    pub(crate) fn seen(&self) -> SeenAgentRequest {
        SeenAgentRequest {
            messages: self.messages.clone(),
            tools: self.tools.clone(),
            settings: self.settings.clone(),
            answer_format: self.answer_format.clone(),
        }
    }

    /// Returns the request for another agent that continues the conversation in this run.
    pub(crate) fn hand_over(&self, messages: Messages) -> Self {
        let from = messages.whole().max(self.messages.len());
        let messages = messages.in_call_order(from).unwrap_or(messages);
        let record = self.context().place().record.clone();
        Self {
            messages,
            // Private to one call, and the callbacks are part of the run by now.
            extensions: Extensions::new(),
            callbacks: None,
            takes_turn: true,
            joins_at: Some(record.len()),
            record,
            neighbours: None,
            ..self.clone()
        }
    }

    /// Returns whether the called agent is a [team](crate::agent::TeamBuilder). `false` before the
    /// agent has received the request.
    #[must_use]
    pub fn is_for_team(&self) -> bool {
        self.is_for_team
    }

    /// Returns the [description](crate::Agent::description) of the called agent. Empty before the
    /// agent has received the request.
    #[must_use]
    pub fn agent_description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// Returns the conversation so far.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Returns the conversation so far, to change it.
    pub fn messages_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// Returns the settings that override the agent's.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the settings that override the agent's, to change them.
    pub fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// Returns the additional tools of this run.
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// Returns the data attached to this call, which its tools and sub-agents do not see: see
    /// [`with_extension`](Self::with_extension) for data of the run.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the data attached to this call, to change it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Returns whether the request has [callbacks](Self::with_callbacks) for its run, of either
    /// place. `false` once the agent has received the request: they are part of the run from then
    /// on.
    #[must_use]
    pub fn has_callbacks(&self) -> bool {
        self.callbacks.is_some()
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
            || !AnswerFormat::is_same(&self.answer_format, &earlier.answer_format)
    }

    fn refusal(&self, reason: impl Into<String>) -> Result<AgentResponse> {
        Ok(AgentResponse::new([Message::assistant(reason)]))
    }

    /// Returns whether the run is streamed: an agent emits events from the start.
    fn is_committed(&self) -> bool {
        self.context().listeners().emitter.is_some()
    }

    fn mark(&self, response: &mut AgentResponse, replaced: Option<&AgentResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.origin = origin;
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
