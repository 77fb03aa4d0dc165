//! Probes between the wrappers of a stack, where an observer asks for them.
//!
//! ```text
//! request   -> | band -> | layer -> | target
//! response  <- | band <- | layer <- |
//! ```
//!
//! A call crosses the boundary between two wrappers (`|`) once in each direction. What is seen
//! there is what one of them has made of the call, and what the other is given. The wrapper that a
//! call has entered is carried in its context: a layer may make a request anew, and several at
//! once, but each of them belongs to the run, and so has the context of the request that it stands
//! for.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::panicking;
use std::time::Duration;

use tokio::time::Instant;
use tower::Service;

use super::future::ResponseFuture;
use super::hook::name;
use super::members::Members;
use crate::call::{BoxCallFuture, CallKind, CallService, Request};
use crate::context::{Carried, RunContext};
use crate::conversation::CallName;
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::lock::lock;
use crate::model::{SeenModelRequest, SeenModelResponse};
use crate::run::{SeenAgentRequest, SeenAgentResponse};
use crate::stream::{
    CallEnd, FieldChange, Observed, PrefixNote, PromptPart, WrapperNote, is_passed_on,
};
use crate::tool::{SeenToolRequest, SeenToolResponse};

/// The view that probes have of calls of one kind.
pub(crate) struct Sight<R: Request> {
    pub(super) context: fn(&mut R) -> &mut RunContext,
    pub(super) request: fn(&R) -> Seen,
    pub(super) response: fn(&R::Response) -> Seen,
    /// Returns whether what is outside must not see the output of this place.
    pub(super) hides_output: fn(&R) -> bool,
}

/// A request or a response as a probe sees it.
pub(crate) enum Seen {
    AgentRequest(SeenAgentRequest),
    AgentResponse(SeenAgentResponse),
    ModelRequest(SeenModelRequest),
    ModelResponse(SeenModelResponse),
    ToolRequest(SeenToolRequest),
    ToolResponse(SeenToolResponse),
}

impl Seen {
    /// Returns the fields that a later one has changed.
    fn changes(&self, later: &Self, with_texts: bool) -> Vec<FieldChange> {
        let mut found = Vec::new();
        match (self, later) {
            (Self::AgentRequest(one), Self::AgentRequest(other)) => one.changes(other, &mut found),
            (Self::AgentResponse(one), Self::AgentResponse(other)) => {
                one.changes(other, &mut found)
            }
            (Self::ModelRequest(one), Self::ModelRequest(other)) => one.changes(other, &mut found),
            (Self::ModelResponse(one), Self::ModelResponse(other)) => {
                one.changes(other, &mut found)
            }
            (Self::ToolRequest(one), Self::ToolRequest(other)) => one.changes(other, &mut found),
            (Self::ToolResponse(one), Self::ToolResponse(other)) => one.changes(other, &mut found),
            // A wrapper and what is inside it have calls of one kind.
            _ => {}
        }
        for change in found.iter_mut().filter(|_| with_texts) {
            let field = &*change.field;
            let texts = match (self, later) {
                (Self::AgentRequest(one), Self::AgentRequest(other)) => one.texts(other, field),
                (Self::AgentResponse(one), Self::AgentResponse(other)) => one.texts(other, field),
                (Self::ModelRequest(one), Self::ModelRequest(other)) => one.texts(other, field),
                (Self::ModelResponse(one), Self::ModelResponse(other)) => one.texts(other, field),
                (Self::ToolRequest(one), Self::ToolRequest(other)) => one.texts(other, field),
                (Self::ToolResponse(one), Self::ToolResponse(other)) => one.texts(other, field),
                _ => None,
            };
            change.with_texts(texts);
        }
        found
    }

    /// Returns the name of the tool that is called.
    fn name(&self) -> Option<Arc<str>> {
        match self {
            Self::ToolRequest(request) => Some(request.name().clone()),
            _ => None,
        }
    }
}

/// A call inside a wrapper: what it was given, and what is known of the calls that it makes.
pub(crate) struct WrapperCall {
    agent: Observed,
    names: Arc<dyn WrapperNames>,
    call: CallKind,
    /// The tool call that it is, or that it is made in.
    tool_call: Option<CallName>,
    iteration: u32,
    attempt: u32,
    index: u32,
    entered: Instant,
    inside: Mutex<Inner>,
}

/// The calls inside a wrapper, as far as they are known.
#[derive(Default)]
struct Inner {
    /// The request that the wrapper was given. `None` once its call is over.
    given: Option<Seen>,
    /// The fields that it has changed.
    request: Vec<FieldChange>,
    calls: u32,
    ended: u32,
    running: u32,
    /// The time at which the first of those began that run now.
    since: Option<Instant>,
    /// The time that calls were running before.
    time: Duration,
    last: Option<CallEnd>,
    /// The last response from inside,
    response: Option<Seen>,
    /// and those before.
    earlier: Vec<Seen>,
    /// Nothing that is inside may be seen outside.
    is_hidden: bool,
}

impl WrapperCall {
    /// Returns the wrapper that a call of this kind and context has entered last.
    pub(super) fn around(context: &RunContext, call: CallKind) -> Option<&Arc<Carried>> {
        let carried = context.entered()?;
        carried.entered()?.is_of(context, call).then_some(carried)
    }

    /// Returns its place in the stack.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the number of wrappers of its call, down to this one.
    fn depth(&self) -> usize {
        // It fits: each wrapper takes memory.
        usize::try_from(self.index).map_or(usize::MAX, |index| index.saturating_add(1))
    }

    fn is_of(&self, context: &RunContext, call: CallKind) -> bool {
        let listeners = context.listeners();
        let observed = listeners.asked_about_wrappers();
        let tool_call = context.tool_call_message();
        let known = self.tool_call.as_ref();
        self.call == call
            && self.iteration == context.iteration()
            && observed.is_some_and(|observed| observed.is_same(&self.agent))
            && tool_call == known.map(|known| (&known.message, known.index))
    }

    /// A call inside begins.
    ///
    /// `is_hidden` says whether what is outside must not see what is inside; it is asked only where
    /// somebody wants the texts.
    fn begin(&self, request: &Seen, is_hidden: impl FnOnce() -> bool, now: Instant) {
        let mut inside = lock(&self.inside);
        if self.agent.asks_for_texts() {
            inside.is_hidden |= is_hidden();
        }
        let asks_for_texts = self.agent.asks_for_texts() && !inside.is_hidden;
        let Inner {
            given: Some(given),
            request: changes,
            ..
        } = &mut *inside
        else {
            return;
        };
        let mut more = given.changes(request, asks_for_texts);
        // Of several calls, each may have another field changed.
        changes.retain(|known| more.iter().all(|change| change.field != known.field));
        changes.append(&mut more);
        inside.calls += 1;
        inside.running += 1;
        inside.since.get_or_insert(now);
    }

    /// A call inside ends, or is dropped.
    fn end(&self, end: CallEnd, response: Option<Seen>, now: Instant) {
        let mut inside = lock(&self.inside);
        if inside.given.is_none() {
            return;
        }
        inside.running -= 1;
        if inside.running == 0
            && let Some(since) = inside.since.take()
        {
            inside.time += now - since;
        }
        if end != CallEnd::Dropped {
            inside.ended += 1;
            inside.last = Some(end);
            let earlier = match response {
                Some(_) => std::mem::replace(&mut inside.response, response),
                None => None,
            };
            inside.earlier.extend(earlier);
        }
    }

    /// Returns the request that the wrapper was given, if it is one of a model whose call goes on.
    fn prompt(&self) -> Option<SeenModelRequest> {
        match &lock(&self.inside).given {
            Some(Seen::ModelRequest(request)) => Some(request.clone()),
            _ => None,
        }
    }

    /// The call leaves the wrapper.
    fn leave(&self, outside: CallEnd, response: Option<&Seen>, carried: &Carried, now: Instant) {
        let (inside, response) = {
            let mut inside = lock(&self.inside);
            let asks_for_texts = self.agent.asks_for_texts() && !inside.is_hidden;
            let changed = |response| inside.changed(response, asks_for_texts);
            let response = response.map_or_else(Vec::new, changed);
            if !self.agent.asks_about_all_wrappers()
                && response.is_empty()
                && inside.request.is_empty()
                && is_passed_on(inside.calls, inside.ended, inside.last, outside)
                && !carried.has_reasons()
            {
                // The call is over, and what it was given is of no more use.
                inside.given = None;
                inside.response = None;
                return;
            }
            let mut inside = std::mem::take(&mut *inside);
            if inside.is_hidden {
                // One of several calls inside may be known to be later than the change.
                for change in &mut inside.request {
                    change.texts = None;
                }
            }
            (inside, response)
        };
        let running = inside.since.map_or(Duration::ZERO, |since| now - since);
        let note = WrapperNote {
            index: self.index,
            names: self.names.names(),
            call: self.call,
            name: inside.given.as_ref().and_then(Seen::name),
            tool_call: self.tool_call.as_ref().map(CallName::in_stream),
            iteration: self.iteration,
            attempt: self.attempt,
            request: inside.request,
            calls: inside.calls,
            dropped: inside.calls - inside.ended,
            inside: inside.last,
            response,
            outside,
            reasons: carried.reasons(),
            own_time: (now - self.entered).saturating_sub(inside.time + running),
        };
        self.agent.tell_wrapper(note);
    }
}

impl Inner {
    /// Returns the fields of a response that differ from those of what came from inside: it may be
    /// any of several.
    fn changed(&self, response: &Seen, asks_for_texts: bool) -> Vec<FieldChange> {
        let Some(last) = &self.response else {
            return Vec::new();
        };
        let is_another = |seen: &Seen| seen.changes(response, false).is_empty();
        let changes = last.changes(response, asks_for_texts);
        if !changes.is_empty() && self.earlier.iter().any(is_another) {
            return Vec::new();
        }
        changes
    }
}

/// The names of a wrapper: of a band's callbacks, or of a layer.
pub(super) trait WrapperNames: Send + Sync {
    fn names(&self) -> Vec<String>;
}

impl<R: Request> WrapperNames for Members<R> {
    fn names(&self) -> Vec<String> {
        let names = self
            .all()
            .iter()
            .map(|callback| name(callback.get()).into());
        names.collect()
    }
}

impl WrapperNames for Vec<String> {
    fn names(&self) -> Vec<String> {
        self.clone()
    }
}

/// The way of a model call to the model, from the inside out: what has reached the model, and what
/// each wrapper was given.
pub(crate) struct PromptTrail(Vec<SeenModelRequest>);

impl PromptTrail {
    /// Compares a call that reaches the model, inside of this wrapper, with the one before in the
    /// same call of its agent.
    fn follow(
        observed: &Observed,
        context: &RunContext,
        inner: Option<&Arc<Carried>>,
        reached: SeenModelRequest,
    ) {
        let wrappers = || Self::wrappers(inner);
        let mut given = Vec::with_capacity(wrappers().next().map_or(1, |inner| inner.depth() + 1));
        given.push(reached);
        for wrapper in wrappers() {
            // A call that goes on although a wrapper around it is through is nobody's.
            let Some(request) = wrapper.prompt() else {
                return;
            };
            given.push(request);
        }
        let now = Self(given);
        let mut latest = lock(&context.scope().prompt);
        let changed = latest.as_ref().and_then(|before| before.changed_in(&now));
        let note = match (changed, &*latest) {
            (Some(changed), Some(before)) => {
                let by = before.changed_by(&changed, &now, wrappers());
                Some(PrefixNote {
                    iteration: context.iteration(),
                    attempt: failed_attempts(context, CallKind::Model),
                    changed,
                    wrapper: by.map(WrapperCall::index),
                    changed_by: by.map(|by| by.names.names()).unwrap_or_default(),
                })
            }
            _ => None,
        };
        let before = latest.replace(now);
        drop(latest);
        drop(before);
        if let Some(note) = note {
            observed.tell_prefix(note);
        }
    }

    /// Returns the wrappers of a call, from the innermost out.
    fn wrappers(inner: Option<&Arc<Carried>>) -> impl Iterator<Item = &WrapperCall> {
        let around = inner.into_iter().flat_map(Carried::around);
        let mut wrappers = around.filter_map(|carried| carried.entered()).peekable();
        // Those of one call are next to each other, and further out are those of the agent.
        let depth = wrappers.peek().map_or(0, |inner| inner.depth());
        wrappers.take(depth)
    }

    /// Returns the first part of the prompt that the next call does not repeat.
    fn changed_in(&self, next: &Self) -> Option<PromptPart> {
        self.0.first()?.changed_in_prompt(next.0.first()?)
    }

    /// Returns the wrapper of the next call that was given what the call before has sent as well,
    /// and has made something else of it. Where one of them has passed others, nothing says which.
    fn changed_by<'a>(
        &self,
        changed: &PromptPart,
        next: &Self,
        wrappers: impl Iterator<Item = &'a WrapperCall>,
    ) -> Option<&'a WrapperCall> {
        if self.0.len() != next.0.len() {
            return None;
        }
        let given = self.0.iter().zip(&next.0).skip(1);
        let mut given = given.zip(wrappers);
        let by = given.find(|((before, now), _)| before.is_repeated(changed, now));
        by.map(|(_, wrapper)| wrapper)
    }
}

/// Returns how many attempts at a call of this kind have failed.
pub(super) fn failed_attempts(context: &RunContext, call: CallKind) -> u32 {
    let tally = &context.scope().tally;
    tally.failed_attempts(call, context.own_tool_call())
}

/// A probe on a boundary, while a call is behind it.
pub(super) struct BoundaryProbe<R: Request> {
    sight: &'static Sight<R>,
    /// The wrapper that the call has left on its way in.
    outer: Option<Arc<Carried>>,
    /// The wrapper that it has entered. `None` at the target.
    entered: Option<Arc<Carried>>,
    is_over: bool,
}

impl<R: Request> BoundaryProbe<R> {
    /// A call enters a wrapper with these names. `None` if no observer asks.
    ///
    /// `waiting` is when it began to wait for the wrapper to become ready, if it had to.
    #[inline]
    pub(super) fn enter(
        sight: Option<&'static Sight<R>>,
        names: impl FnOnce() -> Arc<dyn WrapperNames>,
        request: &mut R,
        waiting: Option<Instant>,
    ) -> Option<Self> {
        let observed = request.context().listeners().asked_about_wrappers()?;
        let observed = observed.clone();
        Some(Self::open(sight?, observed, names(), request, waiting))
    }

    // Apart, so that a boundary without a probe stays small.
    #[inline(never)]
    fn open(
        sight: &'static Sight<R>,
        agent: Observed,
        names: Arc<dyn WrapperNames>,
        request: &mut R,
        waiting: Option<Instant>,
    ) -> Self {
        let now = waiting.unwrap_or_else(Instant::now);
        let seen = (sight.request)(request);
        let context = request.context();
        let outer = WrapperCall::around(context, R::CALL).cloned();
        let outer_call = outer.as_ref().and_then(|outer| outer.entered());
        if let Some(outer_call) = outer_call {
            outer_call.begin(&seen, || (sight.hides_output)(request), now);
        }
        let tool_call = context.tool_call_message();
        let call = WrapperCall {
            agent,
            names,
            call: R::CALL,
            tool_call: tool_call.map(|(message, index)| CallName {
                message: message.clone(),
                index,
            }),
            iteration: context.iteration(),
            attempt: failed_attempts(context, R::CALL),
            index: outer_call.map_or(0, |outer| outer.index + 1),
            entered: now,
            inside: Mutex::new(Inner {
                given: Some(seen),
                ..Inner::default()
            }),
        };
        let entered = (sight.context)(request).enter(call);
        Self {
            sight,
            outer,
            entered: Some(entered),
            is_over: false,
        }
    }

    /// A call reaches the target. `None` if no observer asks, or it has passed no wrapper.
    #[inline]
    pub(super) fn reach(sight: Option<&'static Sight<R>>, request: &R) -> Option<Self> {
        let observed = request.context().listeners().asked_about_wrappers()?;
        Self::open_target(sight?, observed, request)
    }

    #[inline(never)]
    fn open_target(sight: &'static Sight<R>, observed: &Observed, request: &R) -> Option<Self> {
        let context = request.context();
        let seen = (sight.request)(request);
        let outer = WrapperCall::around(context, R::CALL);
        if let Some(outer) = outer.and_then(|outer| outer.entered()) {
            let is_hidden = || (sight.hides_output)(request);
            outer.begin(&seen, is_hidden, Instant::now());
        }
        if let Seen::ModelRequest(reached) = seen {
            PromptTrail::follow(observed, context, outer, reached);
        }
        let outer = outer?;
        Some(Self {
            sight,
            outer: Some(outer.clone()),
            entered: None,
            is_over: false,
        })
    }

    fn end(&mut self, end: CallEnd, response: Option<&R::Response>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let now = Instant::now();
        let response = response.map(self.sight.response);
        if let Some(carried) = &self.entered
            && let Some(call) = carried.entered()
        {
            call.leave(end, response.as_ref(), carried, now);
        }
        let outer = self.outer.as_ref();
        if let Some(outer) = outer.and_then(|outer| outer.entered()) {
            outer.end(end, response, now);
        }
    }

    /// Returns a call behind this probe.
    #[cold]
    pub(super) fn around<F, E>(mut self, future: F) -> BoxCallFuture<R>
    where
        F: Future<Output = Result<R::Response, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Box::pin(async move {
            // The future is dropped with this statement, so before its call is over.
            let result = future.await.map_err(|error| Error::from(error.into()));
            match &result {
                Ok(response) => self.end(CallEnd::Response, Some(response)),
                Err(error) => self.end(CallEnd::Failed(error.kind()), None),
            }
            result
        })
    }
}

impl<R: Request> Drop for BoundaryProbe<R> {
    fn drop(&mut self) {
        // A call that panics is dropped by that, not by those who made it.
        let end = if panicking() {
            CallEnd::Failed(ErrorKind::Callback)
        } else {
            CallEnd::Dropped
        };
        self.end(end, None);
    }
}

/// A layer's service, with a probe outside where somebody asks.
pub(super) struct ProbedLayer<S, R: Request> {
    service: S,
    /// Since when the next call waits for the service. The time is the layer's own, or that of what
    /// is inside and has not been ready either.
    waiting: Option<Instant>,
    /// `None` outside the stacks of agents.
    sight: Option<&'static Sight<R>>,
    names: Arc<Vec<String>>,
}

impl<S, R: Request> ProbedLayer<S, R> {
    pub(super) fn new(
        service: S,
        sight: Option<&'static Sight<R>>,
        names: Arc<Vec<String>>,
    ) -> Self {
        Self {
            service,
            waiting: None,
            sight,
            names,
        }
    }
}

impl<S: Clone, R: Request> Clone for ProbedLayer<S, R> {
    /// The clone is not ready, and nobody waits for it.
    fn clone(&self) -> Self {
        Self::new(self.service.clone(), self.sight, self.names.clone())
    }
}

impl<S: CallService<R>, R: Request> Service<R> for ProbedLayer<S, R> {
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = self.service.poll_ready(cx);
        // A browser has no such clock.
        if polled.is_pending() && cfg!(not(target_family = "wasm")) {
            self.waiting.get_or_insert_with(Instant::now);
        }
        polled.map_err(|error| Error::from(error.into()))
    }

    #[inline]
    fn call(&mut self, mut request: R) -> Self::Future {
        let names = || -> Arc<dyn WrapperNames> { self.names.clone() };
        let waiting = self.waiting.take();
        let probe = BoundaryProbe::enter(self.sight, names, &mut request, waiting);
        let future = self.service.call(request);
        match probe {
            None => ResponseFuture::plain(future),
            Some(probe) => ResponseFuture::boxed(probe.around(future)),
        }
    }
}
