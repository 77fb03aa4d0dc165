//! The run that a call belongs to.

mod carried;
mod latch;
mod run;
mod state;
mod suspended;
mod values;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) use self::carried::{Carried, Place};
pub(crate) use self::state::Untold;
pub use self::state::{State, StateDelta};
pub(crate) use self::suspended::{Conversation, Suspended};
pub use self::values::{ValueTypeError, Values};

use self::latch::Call;
use self::run::{Given, Run, Scope};
use crate::call::CallKind;
use crate::error::{CallSite, Error, Pending, Resolution};
use crate::lock::lock;
use crate::message::{Message, Part, Usage};
use crate::stream::{EventKind, Events, Outlet, ReaderWait};

/// What every call knows of its run: a cheap handle, read-only except for the places for data.
///
/// There are three of those, each with one purpose: the request's
/// [`Extensions`](crate::Extensions) for one call, [`values`](Self::values) for one run, and
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
    pub(crate) tool_call: Option<Arc<str>>,
}

impl RunContext {
    /// Starts a run with a session's state and a token that cancels it.
    #[must_use]
    pub fn new(state: State, cancellation: CancellationToken) -> Self {
        Self::given(Given { state, cancellation, ..Given::default() })
    }

    fn given(given: Given) -> Self {
        Self::of(Scope::root(Run::new(given)), None)
    }

    /// A new run, given what this one was but for `change`.
    fn anew(&self, change: impl FnOnce(&mut Given)) -> Self {
        let mut given = self.scope.run.given.clone();
        change(&mut given);
        Self::given(given)
    }

    /// A new run with another state.
    pub(crate) fn with_state(&self, state: State) -> Self {
        self.anew(|given| given.state = state)
    }

    /// A new run that another token cancels.
    pub(crate) fn with_cancellation(&self, token: CancellationToken) -> Self {
        self.anew(|given| given.cancellation = token)
    }

    /// A new run with these answers as well; of two to one question the later stands.
    pub(crate) fn with_resolutions(&self, more: impl IntoIterator<Item = Resolution>) -> Self {
        self.anew(|given| {
            let mut more = more.into_iter().peekable();
            if more.peek().is_some() {
                let all = Arc::make_mut(given.resolutions.get_or_insert_default());
                all.extend(more.map(|resolution| (resolution.id.clone(), resolution)));
            }
        })
    }

    /// A new run that goes on with these conversations.
    pub(crate) fn with_suspended(&self, suspended: Suspended) -> Self {
        self.anew(|given| given.suspended = suspended)
    }

    /// A new run of this name.
    pub(crate) fn with_run_id(&self, id: Arc<str>) -> Self {
        self.anew(|given| given.id = Some(id))
    }

    /// The same, watched; and what is seen, which is named after `name`. `capacity` events wait for
    /// the reader at most.
    pub(crate) fn watched(&self, name: Arc<str>, capacity: usize) -> (Self, Events) {
        let state = self.scope.run.given.state.clone();
        let (outlet, events) = Outlet::new(name, state, capacity);
        let (caller, limit) = (self.tool_call.clone(), self.max_iterations());
        let mut scope = Scope::child(&self.scope, caller, "", limit, self.carries().clone());
        scope.path = self.scope.path.clone();
        scope.outlet = Some(outlet);
        (Self { scope: Arc::new(scope), ..self.clone() }, events)
    }

    fn of(scope: Scope, tool_call: Option<Arc<str>>) -> Self {
        Self { scope: Arc::new(scope), iteration: 0, texts: 0..0, tool_call }
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
        self.tool_call.as_deref()
    }

    /// Names this call in the whole tree: the agents and the tool calls that it is made in, from
    /// the root, such as `boss/call_1/worker/call_7`. A run that resumes gives a call the same
    /// name again.
    #[must_use]
    pub fn call_path(&self) -> String {
        self.scope.call_path(self.tool_call.as_ref())
    }

    /// The answer to the wait of this id, if the run was resumed with one.
    ///
    /// Every agent of the run sees it.
    #[must_use]
    pub fn resolution(&self, id: &str) -> Option<&Resolution> {
        self.scope.run.given.resolutions.as_ref()?.get(id)
    }

    /// Values of any type that live as long as the run.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.scope.run.values
    }

    /// The session's state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.scope.run.given.state
    }

    /// Tells whoever watches the run about something, as
    /// [`EventKind::Custom`](crate::stream::EventKind::Custom). Waits while the reader is slow;
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
        if let Some(outlet) = self.outlet() {
            outlet.tell(EventKind::Custom { name: name.into(), value: value.into() }).await;
        }
    }

    /// Counts the time that the run waits for whoever reads its stream, from here on. Stays at
    /// zero where nobody watches.
    #[must_use]
    pub fn reader_wait(&self) -> ReaderWait {
        self.outlet().map_or_else(ReaderWait::default, Outlet::reader_wait)
    }

    /// Cancels the run, or waits for somebody to do so.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.scope.run.given.cancellation
    }

    /// The abort that ended the run, if one did.
    #[must_use]
    pub fn aborted(&self) -> Option<&Error> {
        self.scope.run.aborted.get()
    }

    /// What this agent waits for, if it was interrupted.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.scope.latch.pending()
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

    /// The same handle, which tells what happens in its agent if the agent's caller does.
    /// `goes_on` says that the agent goes on with its caller's conversation.
    pub(crate) fn told_to(mut self, caller: &Self, goes_on: bool) -> Self {
        if let Some(outlet) = caller.outlet()
            && let Some(scope) = Arc::get_mut(&mut self.scope)
        {
            let tool_call = self.tool_call.clone();
            scope.outlet = Some(outlet.enter(scope.path.clone(), tool_call, goes_on));
        }
        self
    }

    /// Where to tell what happens in this agent, if somebody watches.
    pub(crate) fn outlet(&self) -> Option<&Outlet> {
        self.scope.outlet.as_ref()
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
        Self { tool_call: Some(id.clone()), ..self.clone() }
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

    /// Keeps the conversation of an agent that waits, for the run that resumes.
    pub(crate) fn suspend(&self, path: String, conversation: Conversation) {
        lock(&self.scope.run.suspended).insert(path, conversation);
    }

    /// The conversation that an agent goes on with.
    pub(crate) fn take_suspended(&self, path: &str) -> Option<Conversation> {
        lock(&self.scope.run.suspended).remove(path)
    }

    /// The conversations that wait.
    pub(crate) fn suspended(&self) -> Suspended {
        lock(&self.scope.run.suspended).clone()
    }

    fn call(&self, kind: CallKind) -> Call {
        Call { kind, turn: self.iteration, tool: self.tool_call.clone() }
    }

    /// Remembers an error that ends more than the call it comes from.
    pub(crate) fn latch(&self, kind: CallKind, error: &Error) {
        if error.is_ending() {
            self.scope.latch(self.call(kind), error, false);
        }
    }

    /// Remembers an error that ends more than the call, which has its answer already.
    pub(crate) fn latch_answered(&self, kind: CallKind, error: &Error) {
        if error.is_ending() {
            self.scope.latch(self.call(kind), error, true);
        }
    }

    /// Why a call of this kind must not start any more.
    pub(crate) fn refusal(&self, kind: CallKind) -> Option<Error> {
        self.scope.refusal(&self.call(kind))
    }

    /// The ending that this very call has brought about, whatever its result says.
    pub(crate) fn ending(&self, kind: CallKind) -> Option<Error> {
        self.scope.ending(&self.call(kind))
    }

    /// Whether this very call waits for somebody, whatever its result says.
    pub(crate) fn waits(&self, kind: CallKind) -> bool {
        self.scope.latch.waits(&self.call(kind))
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("run_id", &self.run_id())
            .field("path", &self.path())
            .field("iteration", &self.iteration)
            .field("tool_call_id", &self.tool_call)
            .finish_non_exhaustive()
    }
}
