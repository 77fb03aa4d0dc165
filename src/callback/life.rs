//! The life of a call, from top to bottom.
//!
//! ```text
//! LayerInner              the stack of an agent, or what is left of it inside a layer
//!   journals              of the tree, of the run
//!   outermost bands       of the tree and the run, own
//!   layers of bundles     global, of the run
//!   bands                 global, own, of the run, inmost
//!     ready               of the inner service, before any callback runs
//!     admit               unless the run has ended
//!     before              may respond instead of the call
//!     admit
//!     attempt             the next band, the next layer, or the target
//!     settle              records an ending, or restores one
//!     on_error            may respond, or retry from the second `admit` on
//!     after               may replace the response
//!     settle
//!     on_end              of every callback that was entered, on drop too
//! ```
//!
//! # What each ending does
//!
//! | ending | the call | `on_error` | `after` | calls that start later |
//! |---|---|---|---|---|
//! | an error of the service | fails, unless it is recovered | runs | runs if it was recovered | are made |
//! | an error of a hook | fails | does not run in this band | does not run | are made |
//! | an abort, or the run's token | fails, also with a response | does not run | does not run | fail, in the whole run |
//! | an interrupt or an end of the invocation | fails | does not run | does not run | fail, in this agent; parallel tool calls of an interrupted one are made |
//! | the same, swallowed inside this band | keeps its response | does not run | guards alone | the same |
//! | the same, by an `after` | keeps its response | does not run | guards alone, from there on | the same |
//! | the limit of model calls | fails | does not run | does not run | fail |
//! | dropped | has no result | does not run | does not run | are made |
//!
//! The recording is in `call/ending.rs` and `context/latch.rs`: `admit` reads it, `settle` writes
//! it.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tower::Service;

use super::action::{Action, Outcome, Recovery};
use super::call_state::CallState;
use super::hook::Hook;
use super::hook_set::HookSet;
use super::list::Callbacks;
use super::phase::{Mode, PhaseDecisions};
use super::position::Position;
use super::probe::{BoundaryProbe, Sight, WrapperNames};
use super::rules::{CallbackRules, Remaining};
use super::stack::{LayerInner, Placed, StackBuilder, StackPart, merged};
use super::tree::Tree;
use crate::call::{
    BoxCallFuture, BoxCallService, CallKind, Origin, Reached, Request, tell_failure,
};
use crate::context::RunContext;
use crate::error::{BoxError, CallSite, Error, ErrorKind, Result};
use crate::on_drop::OnDrop;
use crate::panic::catch;
use crate::stream::NextAttempt;

// Around the bands.

impl<R: Request> LayerInner<R> {
    /// Makes a call, driving readiness first.
    pub(crate) fn make(&self, request: R) -> BoxCallFuture<R> {
        // Apart from the rest, which would make the path of a call without any callback longer.
        if self.has_no_callbacks(request.context()) {
            return self.inner.make(request);
        }
        self.make_in_bands(request)
    }

    /// Returns whether a call of this run meets nothing before its target: no callback, and no
    /// layer.
    pub(crate) fn is_bare(&self, context: &RunContext) -> bool {
        let is_whole = self.from == Position::Journal && self.to == Position::LAST;
        is_whole && self.has_no_callbacks(context)
    }

    fn has_no_callbacks(&self, context: &RunContext) -> bool {
        self.own.parts().is_empty() && Tree::of(context).is_none() && !self.is_outside_run(context)
    }

    /// Returns whether the call does not belong to the run of an agent, although the stack does.
    fn is_outside_run(&self, context: &RunContext) -> bool {
        self.to == Position::LAST && context.path().is_empty()
    }

    #[inline(never)]
    fn make_in_bands(&self, request: R) -> BoxCallFuture<R> {
        match self.layered(request.context()) {
            Some(layered) => layered.make(request),
            None => self.enter(request, None),
        }
    }

    /// Runs the bands around a call, and what is inside them, which may be ready.
    fn enter(&self, mut request: R, ready: Option<BoxCallService<R>>) -> BoxCallFuture<R> {
        if self.is_outside_run(request.context()) {
            let message = format!(
                "a layer has replaced the agent's {} request by a new one, which does not belong to \
                 the run; change the request that the layer received, or a clone of it",
                R::CALL
            );
            let error = Error::new(ErrorKind::InvalidRequest, message);
            return Box::pin(std::future::ready(Err(error)));
        }
        let bands = self.bands(request.context());
        // Never left as it was: a model may pass its request on to another agent.
        request.set_direct(bands.left_out.is_some());
        let Bands { first, inner, .. } = bands;
        let is_ready = ready.is_some();
        if first.is_none() && !is_ready {
            return reach(self.target_sight(), request, |request| {
                self.inner.make(request)
            });
        }
        let inside = Inside {
            bands: (!inner.is_empty()).then(|| Arc::new(inner)),
            next: 0,
            is_in_outermost: false,
            sight: self.sight(),
            target_sight: self.target_sight(),
            inner: ready.unwrap_or_else(|| self.inner.clone()),
        };
        inside.enter(first, request, is_ready)
    }

    /// Returns this in the layers of bundles and the bands between them, if there are layers.
    fn layered(&self, context: &RunContext) -> Option<BoxCallService<R>> {
        self.inherited(context)?;
        let outside = || self.parts(context, Position::RunLayers);
        if !outside().any(|((_, part), _)| matches!(part, StackPart::Layer(_))) {
            return None;
        }
        let outside: Vec<_> = outside().map(|(part, _)| part).collect();
        let inside = Self {
            from: Position::Global,
            ..self.clone()
        };
        let mut layered = BoxCallService::internal(move |request| inside.make(request));
        // From the inside out.
        for (position, part) in outside.into_iter().rev().cloned() {
            let inside = layered;
            layered = match part {
                StackPart::Layer(layer) => (layer.apply)(Self {
                    in_tree: self.in_tree,
                    ..Self::bare(inside)
                }),
                StackPart::Band(band) => {
                    let sight = self.sight();
                    BoxCallService::internal(move |request| {
                        let band = (position, band.clone());
                        run_probed(sight, band, request, inside.clone(), false)
                    })
                }
            };
        }
        Some(layered)
    }

    /// Returns how a probe looks at what reaches the target of the call, which is directly inside
    /// the bands. A layer looks itself, at its own boundary.
    fn target_sight(&self) -> Option<&'static Sight<R>> {
        self.sight().filter(|_| self.to == Position::LAST)
    }

    /// Returns what the agent inherits around the call.
    fn inherited<'a>(&self, context: &'a RunContext) -> Option<&'a StackBuilder<R>> {
        let stack = self.in_tree?.stack;
        Some(stack(&Tree::of(context)?.around))
    }

    /// Returns what is around a call of this run, up to this position.
    fn parts<'a>(
        &'a self,
        context: &'a RunContext,
        to: Position,
    ) -> impl Iterator<Item = (&'a Placed<R>, Option<&'a Callbacks<R>>)> {
        let inherited = self.inherited(context);
        let inherited = inherited.map_or(&[][..], |stack| stack.between(self.from, to));
        let own = self.own.between(self.from, to);
        merged(inherited, own, || Tree::rules_in(context, R::CALL))
    }

    /// Returns the bands around a call of this run.
    fn bands(&self, context: &RunContext) -> Bands<R> {
        let mut bands = Bands {
            first: None,
            inner: Vec::new(),
            left_out: None,
        };
        for ((position, part), joined) in self.parts(context, self.to) {
            let StackPart::Band(band) = part else {
                continue;
            };
            if let Some(joined) = joined {
                bands.push((*position, band.clone().and(joined.clone())));
            } else if !band.is_empty() {
                bands.push((*position, band.clone()));
            }
        }
        bands
    }

    /// Returns the callbacks outside everything else, those of the agent's own first.
    fn outermost(&self, context: &RunContext) -> [Callbacks<R>; 2] {
        let inherited = self.inherited(context);
        let inherited = inherited.map(|stack| stack.band(Position::Outermost));
        let own = self.own.band(Position::Outermost);
        [own, inherited.unwrap_or_default()]
    }

    /// Returns whether callbacks are outside everything else.
    pub(crate) fn is_reviewed(&self, context: &RunContext) -> bool {
        self.outermost(context).iter().any(|band| !band.is_empty())
    }

    /// Asks the callbacks outside everything else about a result of this call that was made outside
    /// its stack.
    pub(crate) async fn review(
        &self,
        request: &R,
        result: Result<R::Response>,
    ) -> Result<R::Response> {
        let mut result = result;
        for band in self.outermost(request.context()) {
            let mut call = begin(Some(Position::Outermost), band, request.clone());
            result = match result {
                Ok(mut response) => {
                    let checked = call.after(&mut response, Mode::All).await;
                    checked.map(|()| response)
                }
                Err(error) => match call.recover(error.clone()).await {
                    Recovery::Fallback(response) => Ok(response),
                    Recovery::Fail(changed) => Err(changed),
                    // The call has been made.
                    Recovery::Propagate | Recovery::Retry => Err(error),
                },
            };
        }
        result
    }
}

impl<R: Request> Service<R> for LayerInner<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> BoxCallFuture<R> {
        let ready = self.inner.take();
        self.enter(request, Some(ready))
    }
}

type Band<R> = (Position, Callbacks<R>);

/// The bands around a call, outermost first; usually at most one, which needs no allocation.
struct Bands<R: Request> {
    first: Option<Band<R>>,
    inner: Vec<Band<R>>,
    /// The last band, if nothing is between it and the first one, with which it is a pair at the
    /// edges of the call: the first one does the work of both.
    left_out: Option<Band<R>>,
}

impl<R: Request> Bands<R> {
    fn push(&mut self, band: Band<R>) {
        let Some((_, first)) = &self.first else {
            self.first = Some(band);
            return;
        };
        self.inner.extend(self.left_out.take());
        if self.inner.is_empty() && first.is_pair_with(&band.1) {
            self.left_out = Some(band);
        } else {
            self.inner.push(band);
        }
    }
}

/// The inner service of a band: the next bands, then the next layer or the target.
struct Inside<R: Request> {
    /// Shared by the bands, each of which may call what is inside it again. `None` if there are no
    /// more.
    bands: Option<Arc<Vec<Band<R>>>>,
    /// The next of them.
    next: usize,
    /// The band around this is outside everything else. It sees a service that fails to become
    /// ready, and waits for none: what is inside it is ready at once.
    is_in_outermost: bool,
    /// The view that probes have of the call, if it is an agent's,
    sight: Option<&'static Sight<R>>,
    /// and where it reaches its target, if that is directly inside the bands.
    target_sight: Option<&'static Sight<R>>,
    inner: BoxCallService<R>,
}

impl<R: Request> Inside<R> {
    fn enter(mut self, band: Option<Band<R>>, request: R, is_ready: bool) -> BoxCallFuture<R> {
        if let Some(band) = band {
            self.is_in_outermost = band.0 == Position::Outermost;
            return run_probed(self.sight, band, request, self, is_ready);
        }
        reach(self.target_sight, request, |request| {
            if is_ready {
                self.inner.call(request)
            } else {
                self.inner.make(request)
            }
        })
    }
}

/// Makes a call of the target, with a probe outside where somebody asks.
#[inline]
fn reach<R: Request>(
    sight: Option<&'static Sight<R>>,
    request: R,
    make: impl FnOnce(R) -> BoxCallFuture<R>,
) -> BoxCallFuture<R> {
    let probe = BoundaryProbe::reach(sight, &request);
    let future = make(request);
    match probe {
        None => future,
        Some(probe) => probe.around(future),
    }
}

/// Runs one call inside a band of a stack, with a probe outside where somebody asks.
#[inline]
fn run_probed<R, S>(
    sight: Option<&'static Sight<R>>,
    (position, callbacks): Band<R>,
    mut request: R,
    inner: S,
    is_ready: bool,
) -> BoxCallFuture<R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send + 'static,
{
    let names = || -> Arc<dyn WrapperNames> { callbacks.clone().into_members() };
    let probe = BoundaryProbe::enter(sight, names, &mut request, None);
    // In one place, with a probe or without: a second one would take the hooks out of line.
    let future = run(Some(position), callbacks, request, inner, is_ready);
    let future = Box::pin(future);
    match probe {
        None => future,
        Some(probe) => probe.around(future),
    }
}

impl<R: Request> Service<R> for Inside<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_in_outermost {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> BoxCallFuture<R> {
        // A retry calls again, so the bands stay; the service that was polled ready goes along.
        let bands = self.bands.as_ref();
        let band = bands.and_then(|bands| bands.get(self.next)).cloned();
        let is_last = bands.is_none_or(|bands| self.next + 1 >= bands.len());
        let inside = Self {
            bands: bands.filter(|_| !is_last).cloned(),
            next: self.next + 1,
            is_in_outermost: false,
            sight: self.sight,
            target_sight: self.target_sight,
            inner: self.inner.take(),
        };
        inside.enter(band, request, !self.is_in_outermost)
    }
}

// One band.

/// Runs one call inside a band, at its position in an agent's stack, if it is in one. `inner` may
/// have been polled ready.
//
// Not an async fn, which would store its arguments twice.
pub(super) fn run<R, S>(
    position: Option<Position>,
    callbacks: Callbacks<R>,
    request: R,
    inner: S,
    is_ready: bool,
) -> impl Future<Output = Result<R::Response>>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    // However it ends, `on_end` runs once for every callback that was entered.
    let call = OnDrop::new(begin(position, callbacks, request), |call| {
        call.end(Outcome::Dropped);
    });
    let mut band = BandCall {
        call,
        inner,
        is_ready,
    };
    async move {
        let result = band.make().await;
        let result = band.settle(result);
        band.call.disarm();
        band.call.end(match &result {
            Ok(response) => Outcome::Done(response),
            Err(error) => Outcome::Failed(error),
        });
        result
    }
}

fn begin<R: Request>(
    position: Option<Position>,
    callbacks: Callbacks<R>,
    request: R,
) -> CallState<R> {
    CallState {
        rules: Tree::rules_of(position, &callbacks, request.context()),
        position,
        callbacks: callbacks.into_members(),
        request,
        entered: 0,
        guards_entered: 0,
    }
}

struct BandCall<R: Request, S> {
    call: OnDrop<CallState<R>>,
    inner: S,
    is_ready: bool,
}

impl<R, S> BandCall<R, S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    async fn make(&mut self) -> Result<R::Response> {
        // No callback runs for a call before the service is ready.
        if !self.is_ready {
            self.ready().await?;
        }
        let (mut response, origin) = self.respond().await?;
        // The service's own response is marked by the inmost band, which is the first to see it.
        if origin != Origin::Service || !self.call.position.is_some_and(Position::is_of_target) {
            self.call.request.mark(&mut response, None, origin);
        }
        let ending = self.context().endings().ending::<R>();
        let mode = match &ending {
            Some(ending) if ending.ends_run() => return Err(ending.clone()),
            Some(ending) if !self.runs_after_ending(ending) => Mode::Guards,
            Some(_) | None if !self.runs_after(origin) => Mode::Guards,
            Some(_) | None => Mode::All,
        };
        let checked = self.call.after(&mut response, mode).await;
        if let Err(error) = &checked
            && R::CALL == CallKind::Agent
            && ending.is_some()
        {
            // Outside, an agent that has ended returns its messages whatever its layers return. A
            // guard that refused them must not be overruled so.
            self.context().endings().withhold(error);
        }
        checked.map(|()| response)
    }

    /// Returns the response before any `after`, and its origin.
    async fn respond(&mut self) -> Result<(R::Response, Origin)> {
        self.call.request.enter_band();
        // In a box, because most rules never need it.
        let original = self
            .call
            .rules
            .before_runs_again
            .then(|| Box::new(self.call.request.clone()));
        let mut before_mode = Some(Mode::All);
        let mut retries = 0;
        let mut failed = None;
        loop {
            if let Some(mode) = before_mode {
                // The run may have ended while the service became ready, or in an `on_error`.
                self.context().endings().admit::<R>()?;
                if let (Some(original), Some(_)) = (&original, failed) {
                    self.call.request.clone_from(original);
                }
                if let Some(response) = self.call.before(mode).await? {
                    return Ok((response, Origin::Before));
                }
            }
            // A hook may have seen an ending and ignored it.
            self.context().endings().admit_further::<R>()?;
            if let Some(kind) = failed {
                let request = &self.call.request;
                let call = CallSite::of(request);
                // Not the error itself: an outer layer may redact its text.
                tracing::warn!(run_id = request.context().run_id(), %call, made = retries, %kind, "retrying call");
                tell_failure(request, kind, NextAttempt::Retry(Duration::ZERO));
            }
            let result = self.attempt().await;
            // Before any `on_error` sees it. A response is settled when the band ends.
            let error = match result.or_else(|error| self.settle(Err(error))) {
                Ok(response) => return Ok((response, Origin::Service)),
                Err(error) if is_final::<R>(self.context(), &error) => return Err(error),
                Err(error) => error,
            };
            let may_retry = retries < self.max_retries();
            failed = Some(error.kind());
            // In a box, so that a call that does not fail needs no space for it.
            match Box::pin(self.call.on_error(error, may_retry)).await? {
                Recovered::Fallback(response) => return Ok((response, Origin::Fallback)),
                Recovered::Retry { .. } if original.is_some() => before_mode = Some(Mode::All),
                // The guards allowed a different request.
                Recovered::Retry { is_changed } => before_mode = is_changed.then_some(Mode::Guards),
            }
            retries += 1;
        }
    }

    /// Calls the inner service once, driving its readiness first.
    async fn attempt(&mut self) -> Result<R::Response> {
        // Readiness is for one call: a retry has to wait for it again.
        if !std::mem::take(&mut self.is_ready) {
            self.ready().await?;
            self.is_ready = false;
        }
        let mut request = self.call.request.clone();
        // What is inside a band of an agent's stack is ours. A band of its own may be inside a
        // model, and refuse an answer of which nobody outside of it hears.
        let is_alone = self.call.position.is_none();
        let reached = is_alone.then(|| Reached::begin(&mut request));
        let result = self.inner.call(request).await;
        let mut result = result.map_err(|error| Error::from(error.into()));
        if let Some(mut reached) = reached {
            reached.end::<R>(&mut result);
        }
        result
    }

    async fn ready(&mut self) -> Result<()> {
        let ready = poll_fn(|cx| self.inner.poll_ready(cx)).await;
        ready.map_err(|error| Error::from(error.into()))?;
        self.is_ready = true;
        Ok(())
    }

    fn settle<T>(&self, result: Result<T>) -> Result<T> {
        self.context()
            .endings()
            .settle::<R, T>(self.call.request.name(), result)
    }

    /// Returns whether `after` runs for a response of this origin.
    fn runs_after(&self, origin: Origin) -> bool {
        match origin {
            Origin::Before => self.call.rules.after_before,
            Origin::Fallback => self.call.rules.after_fallback,
            Origin::Service | Origin::After | Origin::Replay => true,
        }
    }

    /// Returns whether `after` runs although the call ends more than itself.
    fn runs_after_ending(&self, ending: &Error) -> bool {
        let rules = &self.call.rules;
        R::CALL == CallKind::Agent
            && match ending.kind() {
                ErrorKind::Interrupted => rules.after_interrupt,
                ErrorKind::InvocationEnded => rules.after_end,
                _ => false,
            }
    }

    fn max_retries(&self) -> u32 {
        match (self.call.rules.retries, self.context().max_iterations()) {
            (Some(most), _) => most,
            // No agent says how often it may call its model.
            (None, 0) => CallbackRules::RETRIES,
            (None, most) => most,
        }
    }

    fn context(&self) -> &RunContext {
        self.call.request.context()
    }
}

/// Returns whether `on_error` is skipped: the error ends more than the call, or there was no call
/// to recover.
fn is_final<R: Request>(context: &RunContext, error: &Error) -> bool {
    error.is_ending()
        || error.kind() == ErrorKind::MaxIterations
            && context.endings().beyond_limit(R::CALL).is_some()
}

// The hooks of a band, in the order in which they run.

/// The decision of the `on_error`s, unless it is to fail.
enum Recovered<T> {
    /// `is_changed` says whether the `on_error`s have changed the request.
    Retry {
        is_changed: bool,
    },
    Fallback(T),
}

impl<R: Request> CallState<R> {
    /// Runs the `before`s; returns the response of one of them, if any.
    async fn before(&mut self, mode: Mode) -> Result<Option<R::Response>> {
        let mut phase = PhaseDecisions::new(mode);
        let is_watched = self.request.context().listeners().is_told();
        let mut passed = 0;
        while let Some(index) = self.next(&mut passed, phase.mode, HookSet::BEFORE) {
            let Self {
                request, callbacks, ..
            } = self;
            let callback = &callbacks[index];
            let may_hold = R::CALL == CallKind::Tool && callback.guards();
            let callback = callback.get();
            let decision = Hook::new(|| callback.before(request)).await;
            // The usual case, before anything that costs.
            if !is_watched && !may_hold && matches!(decision, Ok(Action::Continue)) {
                continue;
            }
            self.tell(index, "before", &decision).await;
            if may_hold {
                self.hold(index, &decision);
            }
            match decision {
                Ok(Action::Continue) => {}
                // The call is not made, which is all that a guard could want.
                _ if phase.mode == Mode::Notify => {}
                Ok(Action::SkipRest) => phase.mode = Mode::Guards,
                Ok(Action::Respond(_))
                    if !self.may_respond(index, "before", self.rules.before_responds) => {}
                Ok(Action::Respond(response)) => {
                    phase.response = Some(response);
                    match self.rules.before_response {
                        Remaining::Run => {}
                        Remaining::Notify if phase.mode == Mode::All => phase.mode = Mode::Notify,
                        // Not even guards run: there is no call that they could block.
                        Remaining::Notify | Remaining::Skip => break,
                    }
                }
                Err(error) => {
                    phase.fail(self.raised(error, index, "before"), self.rules.failure)?;
                }
            }
        }
        Ok(phase.finish()?.map(|response| *response))
    }

    /// Runs the `on_error`s for an error of the call itself.
    async fn on_error(
        &mut self,
        mut error: Error,
        may_retry: bool,
    ) -> Result<Recovered<R::Response>> {
        let mut phase = PhaseDecisions::new(Mode::All);
        let sent = self.request.clone();
        let mut retries = false;
        let mut passed = 0;
        while let Some(index) = self.next(&mut passed, phase.mode, HookSet::ON_ERROR) {
            let Self {
                request, callbacks, ..
            } = self;
            let callback = &callbacks[index];
            let is_guard = callback.guards();
            let callback = callback.get();
            let decision = Hook::new(|| callback.on_error(request, &error)).await;
            self.tell(index, "on_error", &decision).await;
            match decision {
                Ok(Recovery::Propagate) => {}
                _ if phase.mode == Mode::Notify && !is_guard => {}
                // A failed hook takes precedence over a retry, as over a response.
                Ok(Recovery::Retry) if may_retry && phase.error.is_none() => {
                    retries = true;
                    phase.response = None;
                    phase.mode = Mode::Guards;
                }
                Ok(Recovery::Retry) => {}
                Ok(Recovery::Fallback(response)) => {
                    retries = false;
                    phase.response = Some(Box::new(response));
                    phase.apply(self.rules.fallback);
                }
                // A guard that changes an error has not failed.
                Ok(Recovery::Fail(changed)) if !self.rules.fail_is_failure || is_guard => {
                    error = self.raised(changed, index, "on_error");
                    if error.is_ending() {
                        return Err(error);
                    }
                }
                Ok(Recovery::Fail(failure)) | Err(failure) => {
                    phase.fail(self.raised(failure, index, "on_error"), self.rules.failure)?;
                }
            }
        }
        match phase.finish()? {
            Some(response) => Ok(Recovered::Fallback(*response)),
            None if retries => Ok(Recovered::Retry {
                is_changed: self.request.is_changed_from(&sent),
            }),
            None => Err(error),
        }
    }

    /// Runs the `on_error`s for an error without a service.
    async fn recover(&mut self, error: Error) -> Recovery<R::Response> {
        if error.is_ending() {
            return Recovery::Fail(error);
        }
        match self.on_error(error, true).await {
            Ok(Recovered::Retry { .. }) => Recovery::Retry,
            Ok(Recovered::Fallback(response)) => Recovery::Fallback(response),
            Err(error) => Recovery::Fail(error),
        }
    }

    /// Runs the `after`s, which may replace the response.
    async fn after(&mut self, response: &mut R::Response, mode: Mode) -> Result<()> {
        let mut phase = PhaseDecisions::new(mode);
        let is_watched = self.request.context().listeners().is_told();
        let mut passed = 0;
        while let Some(index) = self.next(&mut passed, phase.mode, HookSet::AFTER) {
            let Self {
                request, callbacks, ..
            } = self;
            let callback = &callbacks[index];
            let is_guard = callback.guards();
            // A guard sees the response in effect, and later callbacks see its replacement.
            if is_guard && let Some(in_effect) = phase.response.take() {
                *response = *in_effect;
            }
            let callback = callback.get();
            let decision = Hook::new(|| callback.after(request, response)).await;
            // The usual case, before anything that costs.
            if !is_watched && matches!(decision, Ok(Action::Continue)) {
                continue;
            }
            self.tell(index, "after", &decision).await;
            match decision {
                Ok(Action::Continue) => {}
                _ if phase.mode == Mode::Notify && !is_guard => {}
                Ok(Action::SkipRest) => phase.mode = Mode::Guards,
                Ok(Action::Respond(_))
                    if !self.may_respond(index, "after", self.rules.after_responds) => {}
                Ok(Action::Respond(mut replacement)) => {
                    // For everything outside, the response after the inmost band is the service's.
                    if !self.position.is_some_and(Position::is_of_target) {
                        if is_guard {
                            self.request.mark_guarded(&mut replacement);
                        }
                        // Outside everything else, a callback changes what leaves the call, and
                        // not what the call was: rules that ask for its origin must not see it.
                        let origin = if self.position == Some(Position::Outermost) {
                            Origin::Service
                        } else {
                            Origin::After
                        };
                        self.request.mark(&mut replacement, Some(response), origin);
                    }
                    if self.rules.after_composes || is_guard {
                        *response = *replacement;
                    } else {
                        phase.response = Some(replacement);
                    }
                    phase.apply(self.rules.after_response);
                }
                Err(error) => {
                    let error = self.raised(error, index, "after");
                    match error.kind() {
                        // The run ends; this call has succeeded.
                        ErrorKind::Interrupted | ErrorKind::InvocationEnded => {
                            phase.mode = Mode::Guards;
                        }
                        _ => phase.fail(error, self.rules.failure)?,
                    }
                }
            }
        }
        if let Some(in_effect) = phase.finish()? {
            *response = *in_effect;
        }
        Ok(())
    }

    /// Runs `on_end` of every callback that was entered.
    fn end(&self, outcome: Outcome<'_, R::Response>) {
        for &index in self.callbacks.with(HookSet::ON_END) {
            if self.has_entered(index) {
                let callback = self.at(index).get();
                // It cannot change the result, and neither can its panic.
                drop(catch(|| callback.on_end(&self.request, outcome)));
            }
        }
    }
}

// Hooks without a service.

impl<R: Request> Callbacks<R> {
    /// Runs the `before`s without a service. Returns the response that replaces the call, if a
    /// callback returned one.
    ///
    /// ```
    /// use tower_agent::{Action, Callbacks, ModelRequest, ModelResponse};
    /// use tower_agent::callback::before_model;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tower_agent::Result<()> {
    /// let callbacks = Callbacks::new()
    ///     .with(before_model(|request| request.add_instructions("Be brief.")))
    ///     .with(before_model(|_| Action::Respond(ModelResponse::from_text("pong"))));
    /// let mut request = ModelRequest::default();
    /// let response = callbacks.run_before(&mut request).await?;
    /// assert_eq!(response.unwrap().message().text(), "pong");
    /// assert_eq!(request.instructions(), Some("Be brief."));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of a hook, which names the hook.
    pub async fn run_before(&self, request: &mut R) -> Result<Option<R::Response>> {
        let mut call = begin(None, self.clone(), request.clone());
        let response = call.before(Mode::All).await;
        request.clone_from(&call.request);
        response
    }

    /// Runs the `after`s on a response without a service, and returns the resulting response.
    ///
    /// # Errors
    ///
    /// Returns the error of a hook, which names the hook.
    pub async fn run_after(&self, request: &R, mut response: R::Response) -> Result<R::Response> {
        let mut call = begin(None, self.clone(), request.clone());
        call.after(&mut response, Mode::All).await?;
        Ok(response)
    }

    /// Runs the `on_error`s on an error without a service. Returns [`Recovery::Retry`],
    /// [`Recovery::Fallback`], or [`Recovery::Fail`] with the resulting error, which is a hook's
    /// own if one failed. An abort, an interrupt and an end of the invocation are returned
    /// unchanged.
    pub async fn run_on_error(&self, request: &mut R, error: Error) -> Recovery<R::Response> {
        let mut call = begin(None, self.clone(), request.clone());
        let recovery = call.recover(error).await;
        request.clone_from(&call.request);
        recovery
    }
}
