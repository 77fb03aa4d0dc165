use std::future::Future;
use std::sync::Arc;

use super::action::{Action, Outcome, Recovery};
use super::arc_callback::ArcCallback;
use super::hook::{Hook, name};
use super::hook_set::HookSet;
use super::members::Members;
use super::options::{
    AfterPolicy, BeforePolicy, CallbackSemantics, HookFailure, OnErrorPolicy, RespondScope,
};
use crate::call::{CallKind, Origin, Request};
use crate::error::{CallSite, Error, ErrorKind, Result};
use crate::panic::catch;
use crate::stream::{CallbackNote, Decision, EventKind};

/// A call inside a band: its request, and the decisions of the callbacks, phase by phase.
pub(super) struct CallState<R: Request> {
    pub(super) request: R,
    pub(super) semantics: CallbackSemantics,
    /// Whether the band is directly around the service.
    pub(super) is_inmost: bool,
    callbacks: Arc<Members<R>>,
    /// Callbacks run in order, so those that have started are the first few, and of the later ones
    /// the first few guards.
    asked: usize,
    guards_asked: usize,
}

/// The decision of the `on_error`s, unless it is to fail.
pub(super) enum Recovered<T> {
    Retry,
    Fallback(T),
}

/// How a phase treats its remaining callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// They run.
    Asked,
    /// They run, but only decisions of guards take effect.
    Notified,
    /// Only the guards among them run.
    Guards,
}

/// The decisions so far in a phase.
struct Phase<T> {
    answer: Option<Box<T>>,
    error: Option<Error>,
    rest: Rest,
}

impl<T> Phase<T> {
    fn new(rest: Rest) -> Self {
        Self {
            answer: None,
            error: None,
            rest,
        }
    }

    /// Runs the remaining callbacks without effect, unless they are skipped already.
    fn notify_rest(&mut self) {
        if self.rest == Rest::Asked {
            self.rest = Rest::Notified;
        }
    }

    /// Handles a failed hook. Returns `Err` if the remaining ones do not run.
    fn failed(&mut self, error: Error, failure: HookFailure) -> Result<()> {
        match failure {
            HookFailure::Stop => return Err(self.error.take().unwrap_or(error)),
            HookFailure::NotifyRest => self.notify_rest(),
            HookFailure::Continue => {}
        }
        self.error.get_or_insert(error);
        Ok(())
    }

    /// Returns the response, unless an error takes precedence.
    fn settle(self) -> Result<Option<Box<T>>> {
        self.error.map_or(Ok(self.answer), Err)
    }
}

impl<R: Request> CallState<R> {
    pub(super) fn new(
        request: R,
        callbacks: Arc<Members<R>>,
        semantics: CallbackSemantics,
        is_inmost: bool,
    ) -> Self {
        Self {
            request,
            semantics,
            is_inmost,
            callbacks,
            asked: 0,
            guards_asked: 0,
        }
    }

    /// Runs the `before`s; returns the response of one of them, if any.
    pub(super) async fn before(&mut self, rest: Rest) -> Result<Option<R::Response>> {
        let mut phase = Phase::new(rest);
        let is_watched = self.request.context().emitter().is_some();
        let mut passed = 0;
        while let Some(index) = self.next(&mut passed, phase.rest, HookSet::BEFORE) {
            let Self {
                request, callbacks, ..
            } = self;
            let callback = &callbacks[index];
            let holds = R::CALL == CallKind::Tool && callback.guards();
            let callback = callback.get();
            let answer = Hook::new(|| callback.before(request)).await;
            if !is_watched && !holds && matches!(answer, Ok(Action::Continue)) {
                continue;
            }
            if is_watched {
                self.show(index, "before", answer.as_ref().map(Decision::from))
                    .await;
            }
            if holds {
                self.hold(index, &answer);
            }
            match answer {
                Ok(Action::Continue) => {}
                // The call is not made, which is all that a guard could want.
                _ if phase.rest == Rest::Notified => {}
                Ok(Action::SkipRest) => phase.rest = Rest::Guards,
                Ok(Action::Respond(_)) if !self.counts(index, "before") => {}
                Ok(Action::Respond(response)) => {
                    phase.answer = Some(response);
                    match self.semantics.before {
                        BeforePolicy::FirstNotifyRest if phase.rest == Rest::Asked => {
                            phase.notify_rest();
                        }
                        BeforePolicy::First | BeforePolicy::FirstNotifyRest => break,
                        BeforePolicy::Last => {}
                    }
                }
                Err(error) => {
                    phase.failed(self.raised(error, index, "before"), self.semantics.failure)?;
                }
            }
        }
        Ok(phase.settle()?.map(|response| *response))
    }

    /// Holds a tool call that a guard has interrupted, until that guard allows it.
    fn hold(&self, index: usize, answer: &Result<Action<Box<R::Response>>>) {
        let context = self.request.context();
        let name = || name(self.at(index).get());
        match answer {
            Err(error) if error.kind() == ErrorKind::Interrupted => context.hold_call(&name()),
            Ok(Action::Continue | Action::SkipRest) => context.release_call(&name()),
            _ => {}
        }
    }

    /// Runs the `after`s, which may replace the response.
    pub(super) async fn after(&mut self, response: &mut R::Response, rest: Rest) -> Result<()> {
        let mut phase = Phase::new(rest);
        let is_watched = self.request.context().emitter().is_some();
        let mut passed = 0;
        while let Some(index) = self.next(&mut passed, phase.rest, HookSet::AFTER) {
            let Self {
                request, callbacks, ..
            } = self;
            let callback = &callbacks[index];
            let is_guard = callback.guards();
            // A guard sees the response in effect, and later callbacks see its replacement.
            if is_guard && let Some(answer) = phase.answer.take() {
                *response = *answer;
            }
            let callback = callback.get();
            let answer = Hook::new(|| callback.after(request, response)).await;
            if !is_watched && matches!(answer, Ok(Action::Continue)) {
                continue;
            }
            if is_watched {
                self.show(index, "after", answer.as_ref().map(Decision::from))
                    .await;
            }
            match answer {
                Ok(Action::Continue) => {}
                _ if phase.rest == Rest::Notified && !is_guard => {}
                Ok(Action::SkipRest) => phase.rest = Rest::Guards,
                Ok(Action::Respond(_)) if !self.counts(index, "after") => {}
                Ok(Action::Respond(mut other)) => {
                    if !self.is_inmost {
                        if is_guard {
                            self.request.mark_guarded(&mut other);
                        }
                        self.request.mark(&mut other, Some(response), Origin::After);
                    }
                    if self.semantics.after == AfterPolicy::Compose || is_guard {
                        *response = *other;
                    } else {
                        phase.answer = Some(other);
                    }
                    match self.semantics.after {
                        AfterPolicy::Compose | AfterPolicy::Last => {}
                        AfterPolicy::First => phase.rest = Rest::Guards,
                        AfterPolicy::FirstNotifyRest => phase.notify_rest(),
                    }
                }
                Err(error) => {
                    let error = self.raised(error, index, "after");
                    // The run ends; this call has succeeded.
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::InvocationEnded
                    ) {
                        phase.rest = Rest::Guards;
                    } else {
                        phase.failed(error, self.semantics.failure)?;
                    }
                }
            }
        }
        if let Some(answer) = phase.settle()? {
            *response = *answer;
        }
        Ok(())
    }

    /// Runs the `on_error`s for an error of the call itself.
    pub(super) async fn on_error(
        &mut self,
        mut error: Error,
        may_retry: bool,
    ) -> Result<Recovered<R::Response>> {
        let like_after = self.semantics.on_error == OnErrorPolicy::LikeAfter;
        let several = if like_after {
            self.semantics.after
        } else {
            AfterPolicy::First
        };
        let mut phase = Phase::new(Rest::Asked);
        let mut retries = false;
        let is_watched = self.request.context().emitter().is_some();
        let mut passed = 0;
        while let Some(index) = self.next(&mut passed, phase.rest, HookSet::ON_ERROR) {
            let Self {
                request, callbacks, ..
            } = self;
            let callback = &callbacks[index];
            let (is_guard, callback) = (callback.guards(), callback.get());
            let answer = Hook::new(|| callback.on_error(request, &error)).await;
            if is_watched {
                self.show(index, "on_error", answer.as_ref().map(Decision::from))
                    .await;
            }
            match answer {
                Ok(Recovery::Propagate) => {}
                _ if phase.rest == Rest::Notified && !is_guard => {}
                // A failed hook takes precedence over a retry, as over a response.
                Ok(Recovery::Retry) if may_retry && phase.error.is_none() => {
                    (retries, phase.answer) = (true, None);
                    phase.rest = Rest::Guards;
                }
                Ok(Recovery::Retry) => {}
                Ok(Recovery::Fallback(response)) => {
                    (retries, phase.answer) = (false, Some(Box::new(response)));
                    match several {
                        AfterPolicy::First | AfterPolicy::Compose => phase.rest = Rest::Guards,
                        AfterPolicy::FirstNotifyRest => phase.notify_rest(),
                        AfterPolicy::Last => {}
                    }
                }
                // A guard that changes an error has not failed.
                Ok(Recovery::Fail(other)) if !like_after || is_guard => {
                    error = self.raised(other, index, "on_error");
                    if error.is_ending() {
                        return Err(error);
                    }
                }
                Ok(Recovery::Fail(other)) | Err(other) => {
                    phase.failed(
                        self.raised(other, index, "on_error"),
                        self.semantics.failure,
                    )?;
                }
            }
        }
        match phase.settle()? {
            Some(response) => Ok(Recovered::Fallback(*response)),
            None if retries => Ok(Recovered::Retry),
            None => Err(error),
        }
    }

    /// Runs `on_end` of every callback that has started.
    pub(super) fn end(&self, outcome: Outcome<'_, R::Response>) {
        for &index in self.callbacks.with(HookSet::ON_END) {
            let callback = self.at(index);
            if index < self.asked || index < self.guards_asked && callback.guards() {
                // It cannot change the result, and neither can its panic.
                drop(catch(|| callback.get().on_end(&self.request, outcome)));
            }
        }
    }

    /// Returns the next callback whose `hook` is to run. `passed` counts those with this hook that
    /// were passed. Callbacks before it that lack only this hook count as asked, so their `on_end`
    /// runs.
    #[inline]
    fn next(&mut self, passed: &mut usize, rest: Rest, hook: HookSet) -> Option<usize> {
        let guards_alone = rest == Rest::Guards;
        let asked = if guards_alone {
            &mut self.guards_asked
        } else {
            &mut self.asked
        };
        while let Some(&index) = self.callbacks.with(hook).get(*passed) {
            *passed += 1;
            if !guards_alone || self.callbacks[index].guards() {
                *asked = (*asked).max(index + 1);
                return Some(index);
            }
        }
        *asked = self.callbacks.all().len();
        None
    }

    fn at(&self, index: usize) -> &ArcCallback<R> {
        &self.callbacks[index]
    }

    /// Emits an event about a hook's decision; before the call, it then waits for the consumer.
    //
    // Not an async fn, which would store the event.
    fn show(
        &self,
        index: usize,
        hook: &'static str,
        decision: Result<Decision, &Error>,
    ) -> impl Future<Output = ()> {
        let decision = decision.unwrap_or_else(|error| Decision::Failed(error.clone()));
        let (callback, call) = (name(self.at(index).get()), R::CALL);
        let name = self.request.name().map(Into::into);
        let tool_call = self.request.context().tool_call_in_stream();
        let note = CallbackNote {
            callback,
            hook,
            call,
            name,
            tool_call,
            decision,
        };
        let note = EventKind::Callback(Arc::new(note));
        let told = self
            .request
            .context()
            .emitter()
            .and_then(|emitter| match hook {
                "before" => Some(emitter.tell(note)),
                // The call has been made. If it were dropped here while the consumer is slow, its
                // result would be lost.
                _ => {
                    emitter.note(note);
                    None
                }
            });
        async move {
            if let Some(told) = told {
                told.await;
            }
        }
    }

    /// Returns whether this callback's response takes effect in this hook.
    fn counts(&self, index: usize, hook: &'static str) -> bool {
        if self.at(index).guards() {
            return true;
        }
        let counts = match self.semantics.respond {
            RespondScope::Everywhere => true,
            RespondScope::AfterModel => hook == "after" && R::CALL == CallKind::Model,
        };
        if !counts {
            let call = R::CALL;
            tracing::warn!(%call, hook, "ignored response: under these semantics only an `after` of a model call may respond");
        }
        counts
    }

    /// Adds the names of the call, the callback and the hook to an error.
    fn raised(&self, error: Error, index: usize, hook: &'static str) -> Error {
        let error = self.name_call(error.by(|| name(self.at(index).get()), hook));
        let context = self.request.context();
        match hook {
            "after" => context.latch_answered::<R>(&error),
            _ => context.latch::<R>(&error),
        }
        error
    }

    pub(super) fn name_call(&self, error: Error) -> Error {
        error.in_call(|| CallSite::of(&self.request))
    }
}

impl<T> From<&Action<T>> for Decision {
    fn from(action: &Action<T>) -> Self {
        match action {
            Action::Continue => Self::Continue,
            Action::SkipRest => Self::SkipRest,
            Action::Respond(_) => Self::Respond,
        }
    }
}

impl<T> From<&Recovery<T>> for Decision {
    fn from(recovery: &Recovery<T>) -> Self {
        match recovery {
            Recovery::Propagate => Self::Propagate,
            Recovery::Fail(_) => Self::Fail,
            Recovery::Retry => Self::Retry,
            Recovery::Fallback(_) => Self::Fallback,
        }
    }
}
