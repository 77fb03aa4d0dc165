use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::carried::Carried;
use super::effects::EffectLog;
use super::extensions::Extensions;
use super::inherited::WrapperCall;
use super::lease::Lease;
use super::place::RecordPlace;
use super::scope::Scope;
use super::settings::Given;
use super::state_trace::StateTrace;
use super::tool_call_scope::ToolCallScope;
use super::values::Values;
use crate::chance;
use crate::conversation::CallName;
use crate::error::{Error, ErrorKind, Interrupt, Resolution, Result};
use crate::message::{Message, MessageId, Usage};
use crate::state::State;
use crate::stream::{EventEmitter, EventKind, EventStream, Invocation, Listeners};

/// The key of the answers that a guard has kept: data about calls, which goes with the last one.
pub(super) const KEPT_ANSWERS: &str = "calls/ answers";

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
    pub(super) carried: Option<Arc<Carried>>,
}

impl Clone for RunContext {
    // Not inlined: in each place that makes a call it would be several lines of the instruction
    // cache.
    #[inline(never)]
    fn clone(&self) -> Self {
        Self {
            scope: self.scope.clone(),
            iteration: self.iteration,
            texts: self.texts.clone(),
            tool_call: self.tool_call.clone(),
            beyond_limit: self.beyond_limit,
            carried: self.carried.clone(),
        }
    }
}

impl From<Scope> for RunContext {
    fn from(scope: Scope) -> Self {
        Self {
            scope: Arc::new(scope),
            iteration: 0,
            texts: 0..0,
            tool_call: None,
            beyond_limit: false,
            carried: None,
        }
    }
}

impl Invocation {
    /// Returns the agent that makes the call with this context, as the events of the run name it:
    /// for code that adds to what an observer is told. `None` if nobody is told anything.
    #[must_use]
    pub fn of(context: &RunContext) -> Option<&Arc<Self>> {
        context.listeners().invocation()
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
        Scope::root(given, None).into()
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
        let watched = Self {
            scope: Arc::new(scope),
            ..self.clone()
        };
        (watched, events)
    }

    /// Returns the run's id; unique, unless the caller has set it.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.scope.run.id
    }

    /// Returns the name of the agent that makes this call. Empty for a call made without an agent.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.scope.node.name()
    }

    /// Returns the names of the agents from the root to this one, joined by `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.scope.node.path
    }

    /// Returns the number of model calls before this turn: 0 at the first.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    /// Returns the maximum number of model calls of the agent.
    #[must_use]
    pub fn max_iterations(&self) -> u32 {
        self.scope.settings.max_iterations
    }

    /// Returns the model's texts in earlier turns, oldest first. Empty at the first model call.
    #[must_use]
    pub fn texts(&self) -> Vec<Arc<str>> {
        self.scope.tally.texts(self.texts.clone())
    }

    /// Returns the tokens used so far by the whole run, including sub-agents and failed attempts:
    /// see [`AgentResponse::usage`](crate::AgentResponse::usage).
    pub fn usage(&self) -> Usage {
        // Counted in every scope, so the outermost has the sum.
        let root = self.scope.around().last();
        root.map(|root| root.tally.usage()).unwrap_or_default()
    }

    /// Returns the provider's id of this tool call, or of the tool call that this call is made in.
    #[must_use]
    pub fn tool_call_id(&self) -> Option<&str> {
        self.tool_call.as_ref()?.id()
    }

    /// Returns the id of the message with this tool call, or with the tool call that this call is
    /// made in, and the place of the call among those there. A stream names the call by
    /// [both](MessageId::tool_call).
    #[must_use]
    pub fn tool_call_message(&self) -> Option<(&MessageId, usize)> {
        self.tool_call.as_ref()?.place()
    }

    /// Returns the path of this call in the whole tree: the agents and tool calls that contain it,
    /// from the root, such as `boss/m1.0/worker/m3.1`. A tool call is named by the number of its
    /// message in the conversation and its place there, whatever id the provider has given it. A
    /// resumed run gives a call the same path, and no other call of the conversation has it.
    #[must_use]
    pub fn call_path(&self) -> String {
        self.scope.path_of_call(self.tool_call.as_ref(), false)
    }

    /// Returns the path of this execution of the call: the [call path](Self::call_path), where
    /// agents that one call has called more than once, each with a conversation of its own, are
    /// numbered: `boss/m1.0/worker//2/m3.1`. No other call that runs at the same time has it, and a
    /// run that is made again in another process gives a call the same one.
    ///
    /// Agents are numbered in the order in which they start.
    #[must_use]
    pub fn step_path(&self) -> String {
        self.scope.path_of_call(self.tool_call.as_ref(), true)
    }

    /// Returns a number from 0 up to 1 that looks random, and is the same whenever this run asks
    /// for `what` in this call. It depends on the [run's id](Self::run_id) and on nothing else.
    #[must_use]
    pub fn chance(&self, what: &str) -> f64 {
        chance::unit(&[
            self.run_id(),
            &self.step_path(),
            &self.iteration.to_string(),
            what,
        ])
    }

    /// Returns the resolution of the interrupt with this [id](Interrupt::id), if the run was
    /// resumed with one, or an earlier one has [kept](Self::keep_answers) it. Every agent of the
    /// run sees it. For code that keeps the ids of what it has asked; [`ask`](Self::ask) does.
    ///
    /// An interrupt that this agent has raised in this run has none: it cannot have been answered
    /// yet.
    #[must_use]
    pub fn resolution(&self, id: &str) -> Option<Resolution> {
        if self.scope.latch.has_asked(id) {
            return None;
        }
        let given = self.scope.settings.resolutions.as_ref();
        let given = given.and_then(|given| given.get(id)).cloned();
        given.or_else(|| self.kept_answers()?.remove(id))
    }

    pub(super) fn kept_answers(&self) -> Option<BTreeMap<String, Resolution>> {
        let private = self.private_state();
        if !private.has_data_about_calls() {
            return None;
        }
        // A value that cannot be read counts as no answers: the questions are asked anew.
        private.read(KEPT_ANSWERS, |stored| BTreeMap::deserialize(stored?).ok())
    }

    /// Returns all resolutions that the run was resumed with, by their ids.
    #[must_use]
    pub fn resolutions(&self) -> Vec<Resolution> {
        let given = self.scope.settings.resolutions.iter();
        given.flat_map(|by_id| by_id.values().cloned()).collect()
    }

    /// Returns the run's values, of any type.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.scope.run.values
    }

    /// Returns the value of type `T` that the caller gave the run, for code that cannot do without.
    ///
    /// ```
    /// use tower_agent::{Request, Result, ToolRequest};
    ///
    /// struct Customer {
    ///     name: String,
    /// }
    ///
    /// fn orders(call: &ToolRequest) -> Result<String> {
    ///     let customer = call.context().extension::<Customer>()?;
    ///     Ok(format!("the orders of {}", customer.name))
    /// }
    /// # drop(orders);
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
        &self.scope.settings.extensions
    }

    /// Returns the session's state.
    #[must_use]
    pub fn state(&self) -> &State {
        match self.carried.as_deref() {
            Some(Carried {
                trace: Some(trace), ..
            }) => trace.inside(),
            Some(Carried {
                effects: Some(log), ..
            }) => &log.0.state,
            _ => &self.scope.run.state,
        }
    }

    /// Traces the use that this call makes of the state from now on.
    pub(crate) fn trace_state(&mut self) -> StateTrace {
        let trace = StateTrace::new(self.state().clone());
        self.carried = Some(Carried::traced(trace.clone(), self.carried.take()));
        trace
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
    /// use tower_agent::{Agent, AgentRequest, Request};
    /// use tower_agent::callback::before_agent;
    /// use tower_agent_test::{ScriptedModel, Turn};
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
        let log = self.effects();
        log.map_or(of_run, |log| &log.0.private_state)
    }

    /// Emits a custom event, [`EventKind::Custom`], on the run's stream. Waits while the consumer
    /// is slow. An [observer](crate::stream::observer()) is told of it as well. Has no effect on a
    /// run that is neither streamed nor observed.
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
        if self.listeners().is_told() {
            let custom = EventKind::Custom {
                name: name.into(),
                value: value.into(),
            };
            self.listeners().tell(custom).await;
        }
    }

    /// Tells the program what middleware has found or decided, [`EventKind::Note`]. This is as
    /// [`emit`](Self::emit), but for whoever runs the program: logs, tests, a console. A server
    /// sends a note to no client, unless the application translates it.
    ///
    /// ```
    /// use tower_agent::{Request, ToolRequest};
    /// use tower_agent::callback::before_tool_async;
    ///
    /// let office_hours = before_tool_async(async |call: &mut ToolRequest| {
    ///     call.context().note("office_hours", "closed").await;
    /// });
    /// # drop(office_hours);
    /// ```
    pub async fn note(&self, name: impl Into<Arc<str>>, value: impl Into<Value>) {
        if self.listeners().is_told() {
            let note = EventKind::Note {
                name: name.into(),
                value: value.into(),
            };
            self.listeners().tell(note).await;
        }
    }

    /// Says why the callback or layer that has this call decides as it does, for a developer: the
    /// reason is in the [`CallbackNote`](crate::stream::CallbackNote) and in the
    /// [`WrapperNote`](crate::stream::WrapperNote) about it. The model, the user and the consumer
    /// of a stream do not see it.
    ///
    /// Name the rule and no content, nor whoever is concerned. Has no effect where no observer
    /// [asks](crate::stream::Observer::with_wrappers).
    ///
    /// ```
    /// use tower_agent::callback::before_tool;
    /// use tower_agent::{Action, Request, ToolResponse};
    ///
    /// let small = before_tool(|request| {
    ///     if request.arguments()["cents"].as_u64() <= Some(10_000) {
    ///         return Action::Continue;
    ///     }
    ///     request.context().because("more than a clerk may pay back");
    ///     Action::Respond(ToolResponse::error("I cannot pay back so much."))
    /// });
    /// # drop(small);
    /// ```
    pub fn because(&self, reason: impl Into<Arc<str>>) {
        if let Some(carried) = self.entered() {
            carried.add_reason(reason.into());
        }
    }

    /// Returns whether the run is streamed: a consumer may see what happens before it has ended.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        self.listeners().emitter.is_some()
    }

    /// Returns the token that cancels the run, or the part of it that has [its own
    /// token](crate::AgentRequest::with_cancellation).
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.scope.settings.token
    }

    /// Returns the time until which the run may start calls. It does not end unless somebody
    /// [renews](Lease::renew) or [ends](Lease::end) it, as stores of conversations do.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.scope.run.lease.get_or_init(Lease::default)
    }

    /// Returns what ended the whole run, if anything did: an abort, the cancellation of its token,
    /// or the end of its lease.
    #[must_use]
    #[inline]
    pub fn aborted(&self) -> Option<&Error> {
        self.scope.run.aborted.get()
    }

    /// Returns whether this run goes on with an earlier one, which has paused: it was
    /// [resumed](crate::AgentRequest::resume) while interrupts were open, without another message
    /// of the user. What counts in a run counts over a pause.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::callback::{before_agent, before_tool};
    /// use tower_agent::{Agent, AgentRequest, Interrupt, Request, Resolution, Tool};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let model = ScriptedModel::new([Turn::tool("wipe", json!({})), Turn::from_text("Wiped.")]);
    /// let agent = Agent::builder(model)
    ///     .tool(Tool::function("wipe", "Wipes.", |_: serde_json::Value| "done"))
    ///     .on_agent(before_agent(|request| {
    ///         println!("goes on: {}", request.context().is_continuation());
    ///     }))
    ///     .on_tool(before_tool(|request| {
    ///         request.ask(Interrupt::new("sure", "confirm")).map(drop)
    ///     }))
    ///     .build()?;
    ///
    /// let paused = agent.run("Wipe the disk.").await?;
    /// let yes = Resolution::resolved(&paused.interrupts()[0].id, true);
    /// agent.run(AgentRequest::resume(paused.checkpoint()).with_resolutions([yes])).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_continuation(&self) -> bool {
        self.scope.outermost().place.record.is_continuation()
    }

    /// Returns the interrupts that this agent waits on, if it was interrupted.
    #[must_use]
    pub fn interrupts(&self) -> Vec<Interrupt> {
        self.scope.latch.interrupts()
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
        // Only the nearest: outer teams continue.
        if let Some(member) = self.scope.around().find(|scope| scope.node.is_member) {
            member.node.escalate();
        }
        if let Some(effects) = self.effects() {
            effects.escalate();
        }
    }

    pub(crate) fn add_usage(&self, usage: Usage) {
        if usage == Usage::default() {
            return;
        }
        let path = &self.scope.node.path;
        for scope in self.scope.around() {
            // Parts of one agent share its path.
            let is_own = Arc::ptr_eq(&scope.node.path, path);
            scope.tally.add_usage(usage, is_own);
        }
        if self.listeners().is_told() {
            self.tell_stray_usage();
        }
        if let Some(effects) = self.effects() {
            effects.add_usage(usage);
        }
    }

    /// Tells of what was used outside of turns: before the first, or in a call others went on with.
    #[cold]
    fn tell_stray_usage(&self) {
        let path = &self.scope.node.path;
        let own = |scope: &&Scope| Arc::ptr_eq(&scope.node.path, path);
        let Some(agent) = self.scope.around().take_while(own).last() else {
            return;
        };
        let usage = agent.tally.stray_usage();
        if usage != Usage::default() {
            let usage = Box::new(usage);
            self.listeners().note(EventKind::Usage { usage });
        }
    }

    #[inline]
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the log of the call that this is part of, if its effects are collected.
    #[inline]
    pub(super) fn effects(&self) -> Option<&EffectLog> {
        self.carried.as_ref()?.effects.as_ref()
    }

    /// Returns the innermost wrapper around that a probe watches.
    pub(crate) fn entered(&self) -> Option<&Arc<Carried>> {
        let mut around = self.carried.as_ref()?.around();
        around.find(|carried| carried.entered().is_some())
    }

    /// Makes this the context of a call that has entered a wrapper.
    pub(crate) fn enter(&mut self, wrapper: WrapperCall) -> Arc<Carried> {
        let carried = Carried::wrapper(wrapper, self.carried.take());
        self.carried = Some(carried.clone());
        carried
    }

    #[inline]
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.scope.listeners
    }

    pub(crate) fn place(&self) -> &RecordPlace {
        &self.scope.place
    }

    /// Returns this tool call; `None` for another call, also of an agent called in one.
    pub(crate) fn own_tool_call(&self) -> Option<CallName> {
        let call = self.tool_call.as_ref()?;
        (!self.scope.node.is_in(call)).then(|| call.name())
    }

    /// Returns the context of an agent that starts, perhaps not for the first time.
    pub(crate) fn begun(&self) -> Self {
        let texts = self.scope.tally.text_count();
        Self {
            // The texts of an earlier start are not this one's.
            texts: texts..texts,
            ..self.clone()
        }
    }

    /// Makes this the context of a turn of the loop.
    pub(crate) fn begin_turn(&mut self, iteration: u32, beyond_limit: bool) {
        self.iteration = iteration;
        self.texts.end = self.scope.tally.text_count();
        self.beyond_limit = beyond_limit;
    }

    /// Returns the context of the tool call at this place in the message.
    pub(crate) fn in_tool_call(&self, message: &Message, index: usize) -> Self {
        Self {
            tool_call: Some(ToolCallScope::new(message.clone(), index)),
            ..self.clone()
        }
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
