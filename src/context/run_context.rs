use std::any::type_name;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::effects::Collected;
use super::extensions::Extensions;
use super::inherited::Inherited;
use super::latch::LatchedCall;
use super::nesting::Nesting;
use super::run::{Given, Scope};
use super::tool_call_scope::ToolCallScope;
use super::values::Values;
use crate::call_kind::CallKind;
use crate::chance;
use crate::conversation::{CallName, ConversationRecord};
use crate::error::{CallSite, Error, ErrorKind, Interrupt, Resolution, Result};
use crate::message::{Message, MessageId, Part, Usage};
use crate::state::{CALLS, State};
use crate::stream::{
    ConsumerWait, EventEmitter, EventKind, EventStream, Listeners, Observed, Observer,
};

/// The key under which the guards that hold a tool call are stored.
const HELD: &str = "held";

/// The run that a call belongs to. A cheap handle, read-only except for three places for data:
///
/// - the request's [`Extensions`](crate::call::Extensions) for one call,
/// - [`values`](Self::values) for one run,
/// - [`state`](Self::state) for the session, which arrives with the request and is returned with
///   the response.
///
/// Typed data of the caller, such as who the user is, is in [`extensions`](Self::extensions), and
/// nothing in the run can change it.
///
/// `RunContext::default()` starts a new run, for a call made without an agent.
#[derive(Default)]
pub struct RunContext {
    pub(super) scope: Arc<Scope>,
    pub(super) iteration: u32,
    /// The texts of the scope from earlier turns, since the agent started.
    pub(super) texts: Range<usize>,
    pub(super) tool_call: Option<ToolCallScope>,
    /// The model call with this context is beyond the agent's limit.
    pub(super) beyond_limit: bool,
    /// The log of the call that this is part of, if its effects are collected.
    pub(super) effects: Option<Arc<Collected>>,
}

impl Clone for RunContext {
    // Not inlined: in each place that makes a call it would be several lines of the instruction cache.
    #[inline(never)]
    fn clone(&self) -> Self {
        Self {
            scope: self.scope.clone(),
            iteration: self.iteration,
            texts: self.texts.clone(),
            tool_call: self.tool_call.clone(),
            beyond_limit: self.beyond_limit,
            effects: self.effects.clone(),
        }
    }
}

impl RunContext {
    /// Creates a run with a session's state and a token that cancels it.
    #[must_use]
    pub fn new(state: State, cancellation: CancellationToken) -> Self {
        let given = Given {
            state: Some(state),
            token: Some(cancellation),
            ..Given::default()
        };
        Self::of(Scope::root(given, None), None, None)
    }

    /// Returns the context of a part of the run with further settings.
    pub(super) fn with(&self, given: &Given) -> Self {
        let mut scope = Scope::part(&self.scope, self.tool_call.clone());
        scope.apply(given);
        Self {
            scope: Arc::new(scope),
            ..self.clone()
        }
    }

    /// Returns a context that emits events, and the stream of these events, whose ids start with
    /// `name`. At most `capacity` events wait for the consumer.
    ///
    /// An agent's run is streamed with [`Agent::stream`](crate::Agent::stream); this is for a call
    /// made without an agent.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tower_agent::RunContext;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (context, mut events) = RunContext::default().watched("search".into(), 16);
    /// context.emit("progress", 1).await;
    /// assert!(events.next().await.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn watched(&self, name: Arc<str>, capacity: usize) -> (Self, EventStream) {
        let (emitter, events) = EventEmitter::new(name, self.state().clone(), capacity);
        let mut scope = Scope::part(&self.scope, self.tool_call.clone());
        scope.listeners.emitter = Some(emitter);
        (
            Self {
                scope: Arc::new(scope),
                ..self.clone()
            },
            events,
        )
    }

    pub(super) fn of(
        scope: Scope,
        tool_call: Option<ToolCallScope>,
        effects: Option<Arc<Collected>>,
    ) -> Self {
        Self {
            scope: Arc::new(scope),
            iteration: 0,
            texts: 0..0,
            tool_call,
            beyond_limit: false,
            effects,
        }
    }

    /// Returns the run's id; unique, unless the caller has set it.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.scope.run.id
    }

    /// Returns the name of the agent that makes this call. Empty for a call made without an agent.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.scope.path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the names of the agents from the root to this one, joined by `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.scope.path
    }

    /// Returns the number of model calls before this turn: 0 at the first.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    /// Returns the maximum number of model calls of the agent.
    #[must_use]
    pub fn max_iterations(&self) -> u32 {
        self.scope.max_iterations
    }

    /// Returns the model's texts in earlier turns, oldest first. Empty at the first model call.
    #[must_use]
    pub fn texts(&self) -> Vec<Arc<str>> {
        self.scope.texts(&self.texts)
    }

    /// Returns the tokens used so far by the whole run, including sub-agents and failed attempts.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.scope.root_usage()
    }

    /// Returns the provider's id of this tool call, or of the tool call that this call is made in.
    #[must_use]
    pub fn tool_call_id(&self) -> Option<&str> {
        self.tool_call.as_ref()?.id()
    }

    /// Returns the id of the message with this tool call, or with the tool call that this call is made in, and
    /// the place of the call among those there. A stream names the call by
    /// [both](MessageId::tool_call).
    #[must_use]
    pub fn tool_call_message(&self) -> Option<(&MessageId, usize)> {
        self.tool_call.as_ref()?.place()
    }

    /// Returns the id that the stream gives to that tool call: the id of its message, `-t` and its place
    /// among the calls there.
    pub(crate) fn tool_call_in_stream(&self) -> Option<Arc<str>> {
        self.tool_call.as_ref().map(|call| call.name().in_stream())
    }

    /// Returns the path of this call in the whole tree: the agents and tool calls that contain it,
    /// from the root, such as `boss/m1.0/worker/m3.1`. A tool call is named by the number of its
    /// message in the conversation and its place there, whatever id the provider has given it. A
    /// resumed run gives a call the same path, and no other call of the conversation has it.
    #[must_use]
    pub fn call_path(&self) -> String {
        self.scope.call_path(self.tool_call.as_ref())
    }

    /// Returns the path of this execution of the call: the [call path](Self::call_path), where agents
    /// that one call has called more than once, each with a conversation of its own, are numbered:
    /// `boss/m1.0/worker//2/m3.1`. No other call that runs at the same time has it, and a run that
    /// is made again in another process gives a call the same one.
    ///
    /// Agents are numbered in the order in which they start.
    #[must_use]
    pub fn step_path(&self) -> String {
        self.scope.step_path(self.tool_call.as_ref())
    }

    /// Returns a number from 0 up to 1 that looks random, and is the same whenever this run asks for
    /// `what` in this call. It depends on the [run's id](Self::run_id) and on nothing else.
    #[must_use]
    pub fn chance(&self, what: &str) -> f64 {
        chance::unit(&[
            self.run_id(),
            &self.step_path(),
            &self.iteration.to_string(),
            what,
        ])
    }

    /// Returns the resolution of the interrupt with this id, if the run was resumed with one.
    ///
    /// Every agent of the run sees it.
    #[must_use]
    pub fn resolution(&self, id: &str) -> Option<&Resolution> {
        self.scope.resolutions.as_ref()?.get(id)
    }

    /// Returns all resolutions that the run was resumed with, by their ids.
    #[must_use]
    pub fn resolutions(&self) -> Vec<Resolution> {
        let Some(by_id) = &self.scope.resolutions else {
            return Vec::new();
        };
        let mut all: Vec<_> = by_id.values().cloned().collect();
        // The map has no order, and a replay must see the same one.
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    /// Returns the run's values, of any type.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.scope.run.values
    }

    /// Returns the value of type `T` that the caller gave the run, for code that cannot do without.
    ///
    /// ```
    /// use serde_json::Value;
    /// use tower_agent::{Request, Result, Tool, ToolRequest};
    ///
    /// struct Customer {
    ///     name: String,
    /// }
    ///
    /// async fn orders(_: Value, call: ToolRequest) -> Result<String> {
    ///     let customer = call.context().extension::<Customer>()?;
    ///     Ok(format!("the orders of {}", customer.name))
    /// }
    ///
    /// let tool = Tool::function_with("orders", "Lists the user's orders.", orders);
    /// # drop(tool);
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest), and names the type, if the caller
    /// gave none.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Result<&T> {
        self.extensions().get().ok_or_else(|| {
            let type_name = type_name::<T>();
            let message = format!(
                "the run has no `{type_name}`: add one with `AgentRequest::with_extension`"
            );
            Error::new(ErrorKind::InvalidRequest, message)
        })
    }

    /// Returns the typed data that the caller [gave](crate::AgentRequest::with_extension) the run.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.scope.extensions
    }

    /// Returns the session's state.
    #[must_use]
    pub fn state(&self) -> &State {
        self.effects
            .as_ref()
            .map_or(&self.scope.run.state, |effects| &effects.state)
    }

    /// Returns the conversation's private state: data that callbacks keep across runs, such as the
    /// original text of a placeholder. It is part of the [`Checkpoint`](crate::Checkpoint), and is
    /// never streamed or sent to a client.
    ///
    /// It is shared by everything in a run, sub-agents included. Prefix keys with the name of your
    /// crate.
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
    /// assert_eq!(saved["head"]["private_state"]["my_crate.runs"], 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn private_state(&self) -> &State {
        // Through the log of a collected call, which records the changes for a replay.
        let of_run = &self.scope.run.private_state;
        self.effects
            .as_ref()
            .map_or(of_run, |effects| &effects.private_state)
    }

    /// Returns the key in the [private state](Self::private_state) for data of `name` about this
    /// tool call. The data is removed once the call has a result, and not before: a run that is
    /// interrupted in the call finds it again when it resumes.
    #[must_use]
    pub fn call_key(&self, name: &str) -> String {
        key_in(&self.call_path(), name)
    }

    /// Returns the key in the [private state](Self::private_state) for data of `name` about the tool call
    /// that this agent works in: the [`call_key`](Self::call_key) of that call. `None` if it works in none.
    #[must_use]
    pub fn outer_call_key(&self, name: &str) -> Option<String> {
        let path = self.scope.outer_call_path()?;
        Some(key_in(&path, name))
    }

    /// Removes the data about this tool call and about calls made in it.
    #[inline]
    pub(crate) fn forget_call(&self) {
        // Usually there is none, and a path takes longer than the question.
        if self.private_state().has_data_about_calls() {
            self.forget_data_of_call();
        }
    }

    #[cold]
    fn forget_data_of_call(&self) {
        let private = self.private_state();
        let path = format!("{CALLS}{}", self.call_path());
        // Data of the call, and of the calls in it; not of a call whose id begins like this one.
        private.remove_all(|key| {
            key.strip_prefix(&path)
                .is_some_and(|suffix| suffix.starts_with([' ', '/']))
        });
    }

    /// Removes the data about calls if none is open any more, for example after a user message: a
    /// later call may have the same path as one that is in no transcript.
    pub(crate) fn forget_closed_calls(&self) {
        let private = self.private_state();
        let has_data = private.has_data_about_calls();
        if has_data && self.is_outermost() && !self.record().has_open_calls() {
            private.remove_all(|key| key.starts_with(CALLS));
        }
    }

    /// Emits a custom event, [`EventKind::Custom`], on the run's stream. Waits while the consumer
    /// is slow. An [observer](crate::stream::observer()) is told of it as well. Has no effect on a run that is
    /// neither streamed nor observed.
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
        if self.is_told() {
            let custom = EventKind::Custom {
                name: name.into(),
                value: value.into(),
            };
            self.listeners().tell(custom).await;
        }
    }

    /// Returns a counter of the time that the run waits for the consumer of its stream from now on.
    /// Stays at zero for a run that is not streamed.
    #[must_use]
    pub fn consumer_wait(&self) -> ConsumerWait {
        self.emitter()
            .map_or_else(ConsumerWait::default, EventEmitter::consumer_wait)
    }

    /// Returns the token that cancels the run, or the part of it that has [its own
    /// token](crate::AgentRequest::with_cancellation).
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.scope.token
    }

    /// Returns the caller's token for this part of the run, if there is one.
    pub(crate) fn own_token(&self) -> Option<&CancellationToken> {
        self.scope.own_token.as_ref()
    }

    /// Returns why no agent can be called with this context.
    pub(crate) fn misfit(&self) -> Option<&Error> {
        self.scope.misfit.as_ref()
    }

    /// Aborts the whole run.
    pub(crate) fn abort(&self, error: &Error) {
        // The first abort stands.
        drop(self.scope.run.aborted.set(error.clone()));
    }

    /// Returns the abort that ended the run, if one did.
    #[must_use]
    pub fn aborted(&self) -> Option<&Error> {
        self.scope.run.aborted.get()
    }

    /// Returns the interrupts that this agent waits on, if it was interrupted.
    #[must_use]
    pub fn interrupts(&self) -> Vec<Interrupt> {
        self.scope.latch.interrupts()
    }

    /// Records that a call of this kind has ended more than itself. The call may already have a
    /// result.
    pub(crate) fn end(&self, kind: CallKind, error: &Error, answered: bool) {
        self.scope
            .latch
            .set(self.latched_call(kind), error, answered);
    }

    /// Returns the recorded ending that blocks another call of this kind.
    #[inline]
    pub(crate) fn closed_to(&self, kind: CallKind) -> Option<Error> {
        self.scope.latch.refusal(|| self.latched_call(kind))
    }

    /// Returns the ending of this very call.
    #[inline]
    pub(crate) fn ended_by(&self, kind: CallKind) -> Option<Error> {
        if kind == CallKind::Agent
            && let Some(withheld) = self.scope.withheld.get()
        {
            return Some(withheld.clone());
        }
        self.scope.latch.ending(|| self.latched_call(kind))
    }

    /// Returns whether this very call waits on an interrupt, whatever its result.
    #[inline]
    pub(crate) fn waits(&self, kind: CallKind) -> bool {
        self.scope.latch.waits(|| self.latched_call(kind))
    }

    /// Returns the name of a call of this kind in the latch.
    //
    // Cold: a run that nothing has ended never asks.
    #[cold]
    fn latched_call(&self, kind: CallKind) -> LatchedCall {
        LatchedCall {
            kind,
            turn: self.iteration,
            tool: self.tool_call.clone(),
        }
    }

    /// Returns why the call is blocked, although callbacks run for it.
    pub(crate) fn beyond_limit(&self, kind: CallKind) -> Option<Error> {
        let is_blocked = self.beyond_limit && kind == CallKind::Model;
        is_blocked.then(|| self.limit_reached(self.iteration))
    }

    /// Makes an ended agent fail, so that its response is not used.
    pub(crate) fn withhold(&self, error: &Error) {
        drop(self.scope.withheld.set(error.clone()));
    }

    /// Returns the error of an agent that has reached its limit of model calls.
    pub(crate) fn limit_reached(&self, made: u32) -> Error {
        let plural = if made == 1 { "" } else { "s" };
        let message = format!("no final answer after {made} model call{plural}");
        Error::new(ErrorKind::MaxIterations, message)
    }

    /// Holds this tool call until `guard` [releases](Self::release_call) it or the call has a result. No
    /// run of the conversation executes the tool before, not even with an agent that lacks the guard: the
    /// call then fails.
    ///
    /// Use it in a layer that interrupts the run and must decide about the call when the run resumes.
    /// The calls that a [guard](crate::Callback::is_guard) interrupts are held for it anyway.
    ///
    /// ```
    /// use tower_agent::{Error, Interrupt, RunContext};
    ///
    /// fn ask(context: &RunContext) -> Error {
    ///     context.hold_call("Audit");
    ///     Error::interrupt(Interrupt::new(context.call_path(), "audit"))
    /// }
    /// # drop(ask);
    /// ```
    pub fn hold_call(&self, guard: &str) {
        let mut guards = self.holding_guards();
        if !guards.iter().any(|holding| holding == guard) {
            guards.push(guard.to_owned());
            self.private_state().set(self.call_key(HELD), json!(guards));
        }
    }

    /// Releases this tool call, which `guard` has [held](Self::hold_call).
    pub fn release_call(&self, guard: &str) {
        let mut guards = self.holding_guards();
        let Some(at) = guards.iter().position(|holding| holding == guard) else {
            return;
        };
        guards.remove(at);
        let key = self.call_key(HELD);
        if guards.is_empty() {
            // An empty list would stay in every checkpoint of the conversation.
            self.private_state().remove(&key);
        } else {
            self.private_state().set(key, json!(guards));
        }
    }

    /// Returns why this tool call is blocked: a guard that holds it has not run.
    #[cold]
    pub(crate) fn withheld(&self) -> Option<Error> {
        let guards = self.holding_guards();
        let guard = guards.first()?;
        let message = format!(
            "`{guard}` has an open question about this call, but does not wrap this tool; resume \
             with the agent that was interrupted"
        );
        Some(Error::new(ErrorKind::InvalidRequest, message))
    }

    /// Returns whether a guard may hold this tool call. Costs less than its name.
    pub(crate) fn may_be_held(&self) -> bool {
        self.private_state().has_data_about_calls()
    }

    /// Returns the names of the guards that hold this tool call.
    fn holding_guards(&self) -> Vec<String> {
        let Some(Value::Array(guards)) = self.private_state().get(&self.call_key(HELD)) else {
            return Vec::new();
        };
        guards
            .iter()
            .filter_map(|guard| guard.as_str().map(str::to_owned))
            .collect()
    }

    /// Makes the nearest team around this agent end once its current member has finished.
    ///
    /// Call it from a callback or tool of a member, or of anything inside it. The member itself
    /// finishes; parallel members are dropped, and later ones are not called. Outer teams continue.
    /// Has no effect without a team.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use tower_agent::{Request, Tool, ToolRequest};
    ///
    /// let exit = Tool::function_with("exit", "Ends it all.", |_: Value, request: ToolRequest| {
    ///     request.context().escalate();
    /// });
    /// # drop(exit);
    /// ```
    pub fn escalate(&self) {
        self.scope.escalate();
        if let Some(effects) = &self.effects {
            effects.escalate();
        }
    }

    /// Returns whether the team that called this agent was told to end.
    pub(crate) fn escalated(&self) -> bool {
        self.scope.escalated()
    }

    /// Adds the token usage of one attempt to this agent and its callers.
    pub(crate) fn add_usage(&self, usage: Usage) {
        self.scope.add_usage(usage);
        if let Some(effects) = &self.effects {
            effects.add_usage(usage);
        }
    }

    /// Returns the tokens used so far by this agent and its sub-agents.
    pub(crate) fn agent_usage(&self) -> Usage {
        self.scope.usage()
    }

    /// Returns what the agent at work hands down.
    pub(crate) fn inherited(&self) -> &Inherited {
        &self.scope.inherited
    }

    /// Returns the context of an agent called with this one.
    pub(crate) fn enter(&self, agent: &str, max_iterations: u32, inherited: Inherited) -> Self {
        let caller = self.tool_call.clone();
        let scope = Scope::child(
            &self.scope,
            caller.clone(),
            agent,
            max_iterations,
            inherited,
        );
        Self::of(scope, caller, self.effects.clone())
    }

    /// Returns the context of a team member called with this one.
    pub(crate) fn enter_member(
        &self,
        agent: &str,
        max_iterations: u32,
        inherited: Inherited,
    ) -> Self {
        let caller = self.tool_call.clone();
        let scope = Scope::child(
            &self.scope,
            caller.clone(),
            agent,
            max_iterations,
            inherited,
        );
        Self::of(scope.of_member(), caller, self.effects.clone())
    }

    /// Sets how many agents may be nested inside the agent.
    pub(crate) fn nested(mut self, allowed: Option<u32>) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            scope.nesting = scope.nesting.inside(allowed);
        }
        self
    }

    /// Returns whether no agent is above this one.
    pub(crate) fn is_outermost(&self) -> bool {
        self.scope.is_outermost()
    }

    /// Returns the record of this agent's messages.
    pub(crate) fn record(&self) -> &ConversationRecord {
        &self.scope.place.record
    }

    /// Returns the depth in the tree of agents.
    pub(crate) fn nesting(&self) -> Nesting {
        self.scope.nesting
    }

    /// Makes the agent's events visible on the stream of its caller, if there is one. `goes_on`
    /// means that the agent continues its caller's conversation.
    pub(crate) fn told_to(mut self, caller: &Self, goes_on: bool) -> Self {
        let Some(emitter) = caller.emitter() else {
            return self;
        };
        let tool_call = self.tool_call_in_stream();
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            scope.listeners.emitter = Some(emitter.enter(scope.path.clone(), tool_call, goes_on));
        }
        self
    }

    /// Returns the emitter of the agent's events, if the run is streamed.
    pub(crate) fn emitter(&self) -> Option<&EventEmitter> {
        self.scope.listeners.emitter.as_ref()
    }

    /// Tells these observers and those of the caller what happens in the agent.
    pub(crate) fn observed_by(
        mut self,
        observers: &[Observer],
        caller: &Self,
        goes_on: bool,
    ) -> Self {
        let above = caller.observed();
        if above.is_none() && observers.is_empty() {
            return self;
        }
        let tool_call = self.tool_call_in_stream();
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let streamed = scope.listeners.emitter.as_ref();
            let streamed = streamed.map(EventEmitter::invocation);
            scope.listeners.observed = Observed::enter(
                || scope.run.observed(),
                above,
                observers,
                streamed,
                scope.path.clone(),
                tool_call,
                goes_on,
            );
        }
        self
    }

    /// Returns whether somebody is told what happens in the agent: a consumer, or an observer.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.emitter().is_some() || self.observed().is_some()
    }

    /// Returns the observers of the run, if there are any.
    #[inline]
    pub(crate) fn observed(&self) -> Option<&Observed> {
        self.scope.listeners.observed.as_ref()
    }

    /// Tells the observers of the results of tool calls.
    pub(crate) fn observe_results(&self, results: &[(CallName, Message)]) {
        if let Some(observed) = self.observed() {
            for (call, message) in results {
                observed.tell_results(call, [message]);
            }
        }
    }

    /// Returns everybody who is told what happens in the agent.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.scope.listeners
    }

    /// Begins to count the attempts at the model call of this turn.
    pub(crate) fn begin_attempts(&self) {
        self.scope.begin_call();
    }

    /// Returns the number of attempts that have failed at this call.
    pub(crate) fn failed_attempts(&self, kind: CallKind) -> u32 {
        self.scope
            .failed_attempts(kind, self.own_tool_call().as_ref())
    }

    /// Counts an attempt at this call that has failed; returns its number, and the tokens that it has used.
    pub(crate) fn count_failure(&self, kind: CallKind) -> (u32, Usage) {
        self.scope
            .count_failure(kind, self.own_tool_call().as_ref())
    }

    /// Returns the name of this tool call; `None` for another call, also if its agent was called in a tool
    /// call.
    fn own_tool_call(&self) -> Option<CallName> {
        let call = self.tool_call.as_ref()?;
        (!self.scope.is_in(call)).then(|| call.name())
    }

    /// Returns the context of an agent that starts, perhaps not for the first time.
    pub(crate) fn begun(&self) -> Self {
        let texts = self.scope.text_count();
        Self {
            // The texts of an earlier start are not this one's.
            texts: texts..texts,
            ..self.clone()
        }
    }

    /// Makes this the context of a turn of the loop, whose model call is, or is not, beyond the
    /// limit.
    pub(crate) fn begin_turn(&mut self, iteration: u32, beyond_limit: bool) {
        self.iteration = iteration;
        self.texts.end = self.scope.text_count();
        self.beyond_limit = beyond_limit;
    }

    /// Returns the context of a tool call of this turn: the one at this place among those of the message.
    pub(crate) fn in_tool_call(&self, message: &Message, index: usize) -> Self {
        Self {
            tool_call: Some(ToolCallScope::new(message.clone(), index)),
            ..self.clone()
        }
    }

    /// Stores the model's text for later turns.
    pub(crate) fn push_text(&self, message: &Message) {
        let mut texts = message.parts().iter().filter_map(Part::as_text);
        if texts.any(|text| !text.is_empty()) {
            self.scope.push_text(message.clone());
        }
    }

    /// Returns the call for an error.
    pub(crate) fn site(&self, kind: CallKind, name: Option<&str>) -> CallSite {
        CallSite {
            kind,
            name: name.map(Into::into),
            agent: self.scope.path.clone(),
        }
    }
}

/// Returns the key of the data of `name` about the tool call with this path.
fn key_in(path: &str, name: &str) -> String {
    let mut key = String::with_capacity(CALLS.len() + path.len() + name.len() + 1);
    for part in [CALLS, path, " ", name] {
        key.push_str(part);
    }
    key
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
