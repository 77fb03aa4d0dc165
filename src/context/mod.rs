//! The run that a call belongs to.

mod carried;
mod checkpoint;
mod hold;
mod joined;
mod latch;
mod limit;
mod nesting;
mod record;
mod run;
mod slot;
mod turn;
mod values;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) use self::carried::{Carried, Place};
pub use self::checkpoint::Checkpoint;
pub(crate) use self::joined::Joined;
pub(crate) use self::nesting::Nesting;
pub(crate) use self::record::{Conversation, Open, Record, Suspended, Transcript};
pub(crate) use self::slot::Slot;
pub(crate) use self::turn::Turn;
pub use self::values::{ValueTypeError, Values};

use self::run::{CallName, Given, Scope};
use crate::call_kind::CallKind;
use crate::error::{CallSite, Error, Interrupt, Resolution};
use crate::message::{Message, Part, Usage};
pub use crate::state::{State, StateDelta};
use crate::stream::{EventEmitter, EventKind, EventStream, ReaderWait};

/// How the keys begin of what is kept of tool calls.
pub(crate) const CALLS: &str = "calls/";

/// What every call knows of its run: a cheap handle, read-only except for the places for data.
///
/// There are three of those, each with one purpose: the request's
/// [`Extensions`](crate::call::Extensions) for one call, [`values`](Self::values) for one run, and
/// [`state`](Self::state) for the session, which comes with the request and goes back with the
/// response.
///
/// `RunContext::default()` starts a run of its own, for a call made without an agent.
#[derive(Clone, Default)]
pub struct RunContext {
    scope: Arc<Scope>,
    iteration: u32,
    /// Which of the scope's texts were said before this turn, since the agent began.
    texts: Range<usize>,
    tool_call: Option<CallName>,
    /// The model call made with this handle is one more than the agent may make.
    beyond_limit: bool,
}

impl RunContext {
    /// Starts a run with a session's state and a token that cancels it.
    #[must_use]
    pub fn new(state: State, cancellation: CancellationToken) -> Self {
        let given = Given { state: Some(state), token: Some(cancellation), ..Given::default() };
        Self::of(Scope::root(given), None)
    }

    /// The handle for a part of the run that is given more.
    fn with(&self, given: &Given) -> Self {
        let mut scope = Scope::part(&self.scope, self.tool_call.clone());
        scope.apply(given);
        Self { scope: Arc::new(scope), ..self.clone() }
    }

    /// The same, watched; and what is seen, which is named after `name`. `capacity` events wait for
    /// the reader at most.
    pub(crate) fn watched(&self, name: Arc<str>, capacity: usize) -> (Self, EventStream) {
        let (emitter, events) = EventEmitter::new(name, self.state().clone(), capacity);
        let mut scope = Scope::part(&self.scope, self.tool_call.clone());
        scope.emitter = Some(emitter);
        (Self { scope: Arc::new(scope), ..self.clone() }, events)
    }

    fn of(scope: Scope, tool_call: Option<CallName>) -> Self {
        let (scope, texts) = (Arc::new(scope), 0..0);
        Self { scope, iteration: 0, texts, tool_call, beyond_limit: false }
    }

    /// Names the run; unique unless the caller chose it.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.scope.run.id
    }

    /// The agent that makes this call. Empty for a call made without an agent.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.scope.path.rsplit('/').next().unwrap_or_default()
    }

    /// The agents from the root of the tree to this one, joined by `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.scope.path
    }

    /// How many model calls the agent has made before this turn: 0 at the first.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    /// How many model calls the agent may make.
    #[must_use]
    pub fn max_iterations(&self) -> u32 {
        self.scope.max_iterations
    }

    /// What the model said in earlier turns, first to last. Empty at the first model call.
    #[must_use]
    pub fn texts(&self) -> Vec<Arc<str>> {
        self.scope.texts(&self.texts)
    }

    /// Tokens used so far by the whole run, sub-agents and failed attempts included.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.scope.root_usage()
    }

    /// The provider's name for the tool call that this is, or is made in.
    #[must_use]
    pub fn tool_call_id(&self) -> Option<&str> {
        self.tool_call.as_ref().map(|call| &*call.id)
    }

    /// The same, to keep.
    pub(crate) fn shared_tool_call_id(&self) -> Option<Arc<str>> {
        self.tool_call.as_ref().map(|call| call.id.clone())
    }

    /// Names this call in the whole tree: the agents and the tool calls that it is made in, from
    /// the root, such as `boss/call_1/worker/call_7`. A run that resumes gives a call the same
    /// name again, and no other call of the conversation has it: where a provider gives an id for
    /// the third time, the call is `call_7#3`.
    #[must_use]
    pub fn call_path(&self) -> String {
        self.scope.call_path(self.tool_call.as_ref())
    }

    /// The answer to the wait of this id, if the run was resumed with one.
    ///
    /// Every agent of the run sees it.
    #[must_use]
    pub fn resolution(&self, id: &str) -> Option<&Resolution> {
        self.scope.resolutions.as_ref()?.get(id)
    }

    /// Values of any type that live as long as the run.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.scope.run.values
    }

    /// The session's state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.scope.run.state
    }

    /// The conversation's private state: data that callbacks keep from run to run, such as what
    /// stands behind a placeholder. It goes with the [`Checkpoint`], and is
    /// never shown in a stream or sent to a front end.
    ///
    /// Everything in a run shares it, sub-agents included. Name keys after your crate.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::testing::{ScriptedModel, Turn};
    /// use tower_agent::{Agent, AgentRequest, Request};
    /// use tower_agent::callback::before_agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
    ///     .on_agent(before_agent(|request| {
    ///         let private = request.context().private_state();
    ///         let runs = private.get("my_crate.runs").and_then(|runs| runs.as_u64()).unwrap_or(0);
    ///         private.set("my_crate.runs", runs + 1);
    ///     }))
    ///     .build()?;
    ///
    /// let first = agent.run("Hi.").await?;
    /// let request = AgentRequest::resume(first.checkpoint()).with_message("And again.");
    /// let second = agent.run(request).await?;
    /// let saved = serde_json::to_value(second.checkpoint())?;
    /// assert_eq!(saved["private_state"]["my_crate.runs"], 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn private_state(&self) -> &State {
        &self.scope.run.private_state
    }

    /// Returns the key of the [private state](Self::private_state) under which to keep what
    /// `name` knows of the tool call that this is. What stands there is forgotten once the call
    /// has its answer, and not before: a run that is interrupted in the call finds it again when
    /// it resumes.
    #[must_use]
    pub fn call_key(&self, name: &str) -> String {
        format!("{CALLS}{} {name}", self.call_path())
    }

    /// Forgets what is kept of this tool call, and of those that were made in it.
    pub(crate) fn forget_call(&self) {
        let private = self.private_state();
        if private.is_empty() {
            return;
        }
        let path = format!("{CALLS}{}", self.call_path());
        let is_of_call =
            |key: &str| key.strip_prefix(&path).is_some_and(|rest| rest.starts_with([' ', '/']));
        private.remove_all(is_of_call);
    }

    /// Forgets what is kept of calls where none is open any more, such as after the user has
    /// spoken: a later call may have the name of one that no transcript has.
    pub(crate) fn forget_closed_calls(&self) {
        let private = self.private_state();
        if self.is_outermost() && !private.is_empty() && !self.record().has_open_calls() {
            private.remove_all(|key| key.starts_with(CALLS));
        }
    }

    /// Tells whoever watches the run about something, as
    /// [`EventKind::Custom`]. Waits while the reader is slow;
    /// does nothing where nobody watches.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use tower_agent::{Request, Tool, ToolRequest};
    ///
    /// let search = Tool::function_with("search", "Searches.", async |_: Value, call: ToolRequest| {
    ///     call.context().emit("progress", json!({ "pages": 3 })).await;
    ///     "nothing found"
    /// });
    /// # drop(search);
    /// ```
    pub async fn emit(&self, name: impl Into<Arc<str>>, value: impl Into<Value>) {
        if let Some(emitter) = self.emitter() {
            emitter.tell(EventKind::Custom { name: name.into(), value: value.into() }).await;
        }
    }

    /// Counts the time that the run waits for whoever reads its stream, from here on. Stays at
    /// zero where nobody watches.
    #[must_use]
    pub fn reader_wait(&self) -> ReaderWait {
        self.emitter().map_or_else(ReaderWait::default, EventEmitter::reader_wait)
    }

    /// Cancels the run, or the part of it that was given
    /// [a token of its own](crate::AgentRequest::with_cancellation); or waits for that.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.scope.token
    }

    /// A token of somebody else's that cancels this part of the run.
    pub(crate) fn own_token(&self) -> Option<&CancellationToken> {
        self.scope.own_token.as_ref()
    }

    /// Why no agent can be called with this.
    pub(crate) fn misfit(&self) -> Option<&Error> {
        self.scope.misfit.as_ref()
    }

    /// Ends the whole run.
    pub(crate) fn abort(&self, error: &Error) {
        drop(self.scope.run.aborted.set(error.clone()));
    }

    /// The abort that ended the run, if one did.
    #[must_use]
    pub fn aborted(&self) -> Option<&Error> {
        self.scope.run.aborted.get()
    }

    /// What this agent waits for, if it was interrupted.
    #[must_use]
    pub fn interrupts(&self) -> Vec<Interrupt> {
        self.scope.latch.interrupts()
    }

    /// Asks the nearest team around this agent to end once its member is done.
    ///
    /// For a callback or a tool of a member, or of anything that works for it, to say that no
    /// more is needed. The member itself goes on to its own end; members beside it are dropped,
    /// those behind it are not called. Teams further out go on. Without a team around it this
    /// does nothing.
    ///
    /// ```
    /// use serde_json::Value;
    /// use tower_agent::{Request, Tool, ToolRequest};
    ///
    /// let exit = Tool::function_with("exit", "Ends it all.", |_: Value, request: ToolRequest| {
    ///     request.context().escalate();
    /// });
    /// # drop(exit);
    /// ```
    pub fn escalate(&self) {
        self.scope.escalate();
    }

    /// Whether the team that called this agent was asked to end.
    pub(crate) fn escalated(&self) -> bool {
        self.scope.escalated()
    }

    /// Notes the tokens of one attempt, for this agent and those it works for.
    pub(crate) fn add_usage(&self, usage: Usage) {
        self.scope.add_usage(usage);
    }

    /// Tokens used so far by this agent and those that work for it.
    pub(crate) fn agent_usage(&self) -> Usage {
        self.scope.usage()
    }

    /// What the run carries at a place.
    pub(crate) fn carried<T: Send + Sync + 'static>(&self, place: Place) -> Option<&T> {
        self.scope.carried.at(place).get()
    }

    /// All that the run carries.
    pub(crate) fn carries(&self) -> &Carried {
        &self.scope.carried
    }

    /// The handle for an agent called with this one.
    pub(crate) fn enter(&self, agent: &str, max_iterations: u32, carried: Carried) -> Self {
        let caller = self.tool_call.clone();
        let scope = Scope::child(&self.scope, caller.clone(), agent, max_iterations, carried);
        Self::of(scope, caller)
    }

    /// The handle for an agent that a team calls with this one.
    pub(crate) fn enter_member(&self, agent: &str, max_iterations: u32, carried: Carried) -> Self {
        let caller = self.tool_call.clone();
        let scope = Scope::child(&self.scope, caller.clone(), agent, max_iterations, carried);
        Self::of(scope.of_member(), caller)
    }

    /// The same handle, for an agent that allows so many agents inside it.
    pub(crate) fn nested(mut self, allowed: Option<u32>) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            scope.nesting = scope.nesting.inside(allowed);
        }
        self
    }

    /// How deep it stands in its tree of agents.
    pub(crate) fn nesting(&self) -> Nesting {
        self.scope.nesting
    }

    /// The same handle, which tells what happens in its agent if the agent's caller does.
    /// `goes_on` says that the agent goes on with its caller's conversation.
    pub(crate) fn told_to(mut self, caller: &Self, goes_on: bool) -> Self {
        if let Some(emitter) = caller.emitter()
            && let Some(scope) = Arc::get_mut(&mut self.scope)
        {
            let tool_call = self.tool_call.clone();
            let tool_call = tool_call.map(|call| call.id);
            scope.emitter = Some(emitter.enter(scope.path.clone(), tool_call, goes_on));
        }
        self
    }

    /// Where to tell what happens in this agent, if somebody watches.
    pub(crate) fn emitter(&self) -> Option<&EventEmitter> {
        self.scope.emitter.as_ref()
    }

    /// The handle for an agent that begins, perhaps not for the first time.
    pub(crate) fn begun(&self) -> Self {
        let texts = self.scope.text_count();
        Self { texts: texts..texts, ..self.clone() }
    }

    /// The handle for a turn of the loop.
    pub(crate) fn at_iteration(&self, iteration: u32) -> Self {
        let texts = self.texts.start..self.scope.text_count();
        Self { iteration, texts, ..self.clone() }
    }

    /// The handle for a tool call of this turn.
    pub(crate) fn in_tool_call(&self, id: &Arc<str>) -> Self {
        let call = CallName { id: id.clone(), name: self.record().name_call(id) };
        Self { tool_call: Some(call), ..self.clone() }
    }

    /// Keeps what the model said for later turns.
    pub(crate) fn push_text(&self, message: &Message) {
        let has_text = |part: &Part| part.as_text().is_some_and(|text| !text.is_empty());
        if message.parts().iter().any(has_text) {
            self.scope.push_text(message.clone());
        }
    }

    /// Names the call in an error.
    pub(crate) fn site(&self, kind: CallKind, name: Option<&str>) -> CallSite {
        CallSite { kind, name: name.map(Into::into), agent: self.scope.path.clone() }
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("run_id", &self.run_id())
            .field("path", &self.path())
            .field("iteration", &self.iteration)
            .field("tool_call_id", &self.tool_call_id())
            .finish_non_exhaustive()
    }
}
