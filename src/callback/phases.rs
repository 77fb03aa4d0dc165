//! What a band asks its callbacks, one phase at a time.

use std::sync::Arc;

use super::ending::CallState;
use super::hook::{hook, name};
use super::options::{AfterPolicy, BeforePolicy, HookFailure, OnErrorPolicy, RespondScope};
use super::{Action, Recovery};
use crate::call::Request;
use crate::call::{CallKind, Origin};
use crate::error::{Error, ErrorKind, Result};
use crate::stream::{CallbackNote, Decision, EventEmitter, EventKind};

/// What the `on_error`s decided, if not to fail.
pub(super) enum Recovered<T> {
    Retry,
    Fallback(T),
}

/// Which callbacks a phase goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of them.
    All,
    /// All of them, but only a guard's answers count.
    Told,
    /// The guards alone.
    Guards,
}

/// What has been decided in a phase that goes on.
struct Decided<T> {
    answer: Option<Box<T>>,
    error: Option<Error>,
    asked: Asked,
}

impl<T> Decided<T> {
    fn nothing(asked: Asked) -> Self {
        Self { answer: None, error: None, asked }
    }

    /// The rest are told. Those that are not asked any more stay so.
    fn tell(&mut self) {
        if self.asked == Asked::All {
            self.asked = Asked::Told;
        }
    }

    /// A hook has failed. `Err` if the rest are not asked.
    fn failed(&mut self, error: Error, failure: HookFailure) -> Result<()> {
        match failure {
            HookFailure::Stop => return Err(self.error.take().unwrap_or(error)),
            HookFailure::NotifyRest => self.tell(),
            HookFailure::Continue => {}
        }
        self.error.get_or_insert(error);
        Ok(())
    }

    /// The answer, unless an error beats it.
    fn settle(self) -> Result<Option<Box<T>>> {
        self.error.map_or(Ok(self.answer), Err)
    }
}

impl<R: Request> CallState<R> {
    /// Asks the `before`s; a response is one of theirs.
    pub(super) async fn before(&mut self, asked: Asked) -> Result<Option<R::Response>> {
        let semantics = self.callbacks.semantics();
        let watched = self.request.context().emitter().cloned();
        let mut decided = Decided::nothing(asked);
        for index in 0..self.callbacks.len() {
            if !self.enter(index, decided.asked) {
                continue;
            }
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            let answer = hook(|| callback.before(request)).await;
            if let Some(emitter) = &watched {
                self.note(emitter, index, "before", answer.as_ref().map(Decision::from)).await;
            }
            self.hold(index, &answer);
            match answer {
                Ok(Action::Continue) => {}
                // The call is not made: that is all that a guard could want.
                _ if decided.asked == Asked::Told => {}
                Ok(Action::SkipRest) => decided.asked = Asked::Guards,
                Ok(Action::Respond(_)) if !self.counts(index, "before") => {}
                Ok(Action::Respond(response)) => {
                    decided.answer = Some(response);
                    match semantics.before {
                        BeforePolicy::FirstNotifyRest if decided.asked == Asked::All => {
                            decided.tell()
                        }
                        BeforePolicy::First | BeforePolicy::FirstNotifyRest => break,
                        BeforePolicy::Last => {}
                    }
                }
                Err(error) => {
                    decided.failed(self.raised(error, index, "before"), semantics.failure)?;
                }
            }
        }
        Ok(decided.settle()?.map(|response| *response))
    }

    /// A tool call that a guard has interrupted is held until that guard lets it through.
    fn hold(&self, index: usize, answer: &Result<Action<Box<R::Response>>>) {
        if R::CALL != CallKind::Tool || !self.is_guard(index) {
            return;
        }
        let context = self.request.context();
        let name = || name(self.callbacks.as_slice()[index].get());
        match answer {
            Err(error) if error.kind() == ErrorKind::Interrupted => context.hold(&name()),
            Ok(Action::Continue | Action::SkipRest) => context.release(&name()),
            _ => {}
        }
    }

    /// Asks the `after`s, which may replace the response.
    pub(super) async fn after(&mut self, response: &mut R::Response, asked: Asked) -> Result<()> {
        let semantics = self.callbacks.semantics();
        let watched = self.request.context().emitter().cloned();
        let mut decided = Decided::nothing(asked);
        for index in 0..self.callbacks.len() {
            if !self.enter(index, decided.asked) {
                continue;
            }
            // A guard sees what stands, and what it makes of that is what those behind it see.
            if decided.answer.is_some()
                && self.is_guard(index)
                && let Some(answer) = decided.answer.take()
            {
                *response = *answer;
            }
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            let answer = hook(|| callback.after(request, response)).await;
            if let Some(emitter) = &watched {
                self.note(emitter, index, "after", answer.as_ref().map(Decision::from)).await;
            }
            match answer {
                Ok(Action::Continue) => {}
                _ if decided.asked == Asked::Told && !self.is_guard(index) => {}
                Ok(Action::SkipRest) => decided.asked = Asked::Guards,
                Ok(Action::Respond(_)) if !self.counts(index, "after") => {}
                Ok(Action::Respond(mut other)) => {
                    if !self.callbacks.is_inmost() {
                        if self.is_guard(index) {
                            self.request.mark_guarded(&mut other);
                        }
                        self.request.mark(&mut other, Some(response), Origin::After);
                    }
                    if semantics.after == AfterPolicy::Compose || self.is_guard(index) {
                        *response = *other;
                    } else {
                        decided.answer = Some(other);
                    }
                    match semantics.after {
                        AfterPolicy::Compose | AfterPolicy::Last => {}
                        AfterPolicy::First => decided.asked = Asked::Guards,
                        AfterPolicy::FirstNotifyRest => decided.tell(),
                    }
                }
                Err(error) => {
                    let error = self.raised(error, index, "after");
                    // The run ends; this call has succeeded.
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Ended) {
                        decided.asked = Asked::Guards;
                    } else {
                        decided.failed(error, semantics.failure)?;
                    }
                }
            }
        }
        if let Some(answer) = decided.settle()? {
            *response = *answer;
        }
        Ok(())
    }

    /// Asks the `on_error`s about a failure that is the call's own.
    pub(super) async fn on_error(
        &mut self,
        mut error: Error,
        may_retry: bool,
    ) -> Result<Recovered<R::Response>> {
        let semantics = self.callbacks.semantics();
        let like_after = semantics.on_error == OnErrorPolicy::LikeAfter;
        let several = if like_after { semantics.after } else { AfterPolicy::First };
        let watched = self.request.context().emitter().cloned();
        let mut decided = Decided::nothing(Asked::All);
        let mut retries = false;
        for index in 0..self.callbacks.len() {
            if !self.enter(index, decided.asked) {
                continue;
            }
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            let answer = hook(|| callback.on_error(request, &error)).await;
            if let Some(emitter) = &watched {
                self.note(emitter, index, "on_error", answer.as_ref().map(Decision::from)).await;
            }
            match answer {
                Ok(Recovery::Propagate) => {}
                _ if decided.asked == Asked::Told && !self.is_guard(index) => {}
                // A hook that has failed beats it, as it beats a response.
                Ok(Recovery::Retry) if may_retry && decided.error.is_none() => {
                    (retries, decided.answer) = (true, None);
                    decided.asked = Asked::Guards;
                }
                Ok(Recovery::Retry) => {}
                Ok(Recovery::Fallback(response)) => {
                    (retries, decided.answer) = (false, Some(Box::new(response)));
                    match several {
                        AfterPolicy::First | AfterPolicy::Compose => {
                            decided.asked = Asked::Guards;
                        }
                        AfterPolicy::FirstNotifyRest => decided.tell(),
                        AfterPolicy::Last => {}
                    }
                }
                // A guard that changes an error has not failed.
                Ok(Recovery::Fail(other)) if !like_after || self.is_guard(index) => {
                    error = self.raised(other, index, "on_error");
                    if error.is_ending() {
                        return Err(error);
                    }
                }
                Ok(Recovery::Fail(other)) | Err(other) => {
                    decided.failed(self.raised(other, index, "on_error"), semantics.failure)?;
                }
            }
        }
        match decided.settle()? {
            Some(response) => Ok(Recovered::Fallback(*response)),
            None if retries => Ok(Recovered::Retry),
            None => Err(error),
        }
    }

    /// Tells whoever watches the run what a hook has decided.
    async fn note(
        &self,
        emitter: &EventEmitter,
        index: usize,
        hook: &'static str,
        decision: Result<Decision, &Error>,
    ) {
        let callback = self.callbacks.as_slice()[index].get();
        if !callback.has(hook) {
            return;
        }
        let decision = decision.unwrap_or_else(|error| Decision::Failed(error.clone()));
        let (callback, call) = (name(callback), R::CALL);
        let name = self.request.name().map(Into::into);
        let tool_call_id = self.request.context().shared_tool_call_id();
        let note = CallbackNote { callback, hook, call, name, tool_call_id, decision };
        let note = EventKind::Callback(Arc::new(note));
        match hook {
            "before" => emitter.tell(note).await,
            // The call has been made. If it were dropped while its reader is slow, what it has done
            // would be lost.
            _ => emitter.note(note),
        }
    }

    /// Whether this callback's response counts in this hook.
    fn counts(&self, index: usize, hook: &'static str) -> bool {
        if self.is_guard(index) {
            return true;
        }
        let counts = match self.callbacks.semantics().respond {
            RespondScope::Everywhere => true,
            RespondScope::AfterModel => hook == "after" && R::CALL == CallKind::Model,
        };
        if !counts {
            let call = R::CALL;
            tracing::warn!(%call, hook, "a response counts in the `after` of a model call alone");
        }
        counts
    }

    /// An error of a hook, with the names of the call, the callback and the hook.
    fn raised(&self, error: Error, index: usize, hook: &'static str) -> Error {
        let callback = self.callbacks.as_slice()[index].get();
        let error = self.name_call(error.by(|| name(callback), hook));
        let context = self.request.context();
        match hook {
            "after" => context.latch_answered::<R>(&error),
            _ => context.latch::<R>(&error),
        }
        error
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
