//! What a band asks its callbacks, one phase at a time.

use std::sync::Arc;

use super::ending::Begun;
use super::hook::{hook, name};
use super::semantics::{HookFailure, RespondIn, Several, SeveralAfter, SeveralOnError};
use super::{Action, Recovery};
use crate::call::{CallKind, Origin};
use crate::error::{Error, ErrorKind, Result};
use crate::request::Request;
use crate::stream::{CallbackNote, Decision, EventKind, Outlet};

/// What the `on_error`s decided, if not to fail.
pub(super) enum Recovered<T> {
    Retry,
    Fallback(T),
}

/// What has been decided in a phase that goes on.
struct Decided<T> {
    answer: Option<Box<T>>,
    error: Option<Error>,
    /// The rest are told, and their answers ignored.
    is_over: bool,
}

impl<T> Decided<T> {
    fn nothing() -> Self {
        Self { answer: None, error: None, is_over: false }
    }

    /// A hook has failed. `Err` if the rest are not asked.
    fn failed(&mut self, error: Error, failure: HookFailure) -> Result<()> {
        match failure {
            HookFailure::Stop => return Err(self.error.take().unwrap_or(error)),
            HookFailure::RestTold => self.is_over = true,
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

impl<R: Request> Begun<R> {
    /// Asks the `before`s; a response is one of theirs.
    pub(super) async fn before(&mut self) -> Result<Option<R::Response>> {
        let semantics = self.callbacks.semantics();
        let watched = self.request.context().outlet().cloned();
        let mut decided = Decided::nothing();
        for index in 0..self.callbacks.len() {
            self.enter(index);
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            let answer = hook(|| callback.before(request)).await;
            if let Some(outlet) = &watched {
                self.note(outlet, index, "before", answer.as_ref().map(Decision::from)).await;
            }
            match answer {
                Ok(Action::Continue) => {}
                _ if decided.is_over => {}
                Ok(Action::Proceed) => break,
                Ok(Action::Respond(_)) if !self.counts(index, "before") => {}
                Ok(Action::Respond(response)) => {
                    decided.answer = Some(response);
                    match semantics.before {
                        Several::First => break,
                        Several::FirstRestTold => decided.is_over = true,
                        Several::Last => {}
                    }
                }
                Err(error) => {
                    decided.failed(self.raised(error, index, "before"), semantics.failure)?;
                }
            }
        }
        Ok(decided.settle()?.map(|response| *response))
    }

    /// Asks the `after`s, which may replace the response.
    pub(super) async fn after(&mut self, response: &mut R::Response) -> Result<()> {
        let semantics = self.callbacks.semantics();
        let watched = self.request.context().outlet().cloned();
        let mut decided = Decided::nothing();
        for index in 0..self.callbacks.len() {
            self.enter(index);
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            let answer = hook(|| callback.after(request, response)).await;
            if let Some(outlet) = &watched {
                self.note(outlet, index, "after", answer.as_ref().map(Decision::from)).await;
            }
            match answer {
                Ok(Action::Continue) => {}
                _ if decided.is_over => {}
                Ok(Action::Proceed) => break,
                Ok(Action::Respond(_)) if !self.counts(index, "after") => {}
                Ok(Action::Respond(mut other)) => {
                    self.request.mark(&mut other, Some(response), Origin::After);
                    match semantics.after {
                        SeveralAfter::Compose => *response = *other,
                        SeveralAfter::Last => decided.answer = Some(other),
                        SeveralAfter::First => {
                            decided.answer = Some(other);
                            break;
                        }
                        SeveralAfter::FirstRestTold => {
                            decided.answer = Some(other);
                            decided.is_over = true;
                        }
                    }
                }
                Err(error) => {
                    let error = self.raised(error, index, "after");
                    // The run ends; this call has succeeded.
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Ended) {
                        break;
                    }
                    decided.failed(error, semantics.failure)?;
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
        let like_after = semantics.on_error == SeveralOnError::LikeAfter;
        let several = if like_after { semantics.after } else { SeveralAfter::First };
        let watched = self.request.context().outlet().cloned();
        let mut decided = Decided::nothing();
        for index in 0..self.callbacks.len() {
            self.enter(index);
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            let answer = hook(|| callback.on_error(request, &error)).await;
            if let Some(outlet) = &watched {
                self.note(outlet, index, "on_error", answer.as_ref().map(Decision::from)).await;
            }
            match answer {
                Ok(Recovery::Propagate) => {}
                _ if decided.is_over => {}
                // A hook that has failed beats it, as it beats a response.
                Ok(Recovery::Retry) if may_retry && decided.error.is_none() => {
                    return Ok(Recovered::Retry);
                }
                Ok(Recovery::Retry) => {}
                Ok(Recovery::Fallback(response)) => {
                    decided.answer = Some(Box::new(response));
                    match several {
                        SeveralAfter::First | SeveralAfter::Compose => break,
                        SeveralAfter::FirstRestTold => decided.is_over = true,
                        SeveralAfter::Last => {}
                    }
                }
                Ok(Recovery::Fail(other)) if !like_after => {
                    error = self.raised(other, index, "on_error");
                    if error.is_ending() {
                        break;
                    }
                }
                Ok(Recovery::Fail(other)) | Err(other) => {
                    decided.failed(self.raised(other, index, "on_error"), semantics.failure)?;
                }
            }
        }
        match decided.settle()? {
            Some(response) => Ok(Recovered::Fallback(*response)),
            None => Err(error),
        }
    }

    /// Tells whoever watches the run what a hook has decided.
    async fn note(
        &self,
        outlet: &Outlet,
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
        let note = CallbackNote { callback, hook, call, name, decision };
        outlet.tell(EventKind::Callback(Arc::new(note))).await;
    }

    /// Whether this callback's response counts in this hook.
    fn counts(&self, index: usize, hook: &'static str) -> bool {
        if self.callbacks.as_slice()[index].get().is_guard() {
            return true;
        }
        let counts = match self.callbacks.semantics().respond {
            RespondIn::Everywhere => true,
            RespondIn::AfterModel => hook == "after" && R::CALL == CallKind::Model,
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
            "after" => context.latch_answered(R::CALL, &error),
            _ => context.latch(R::CALL, &error),
        }
        error
    }
}

impl<T> From<&Action<T>> for Decision {
    fn from(action: &Action<T>) -> Self {
        match action {
            Action::Continue => Self::Continue,
            Action::Proceed => Self::Proceed,
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
