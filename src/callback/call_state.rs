use std::future::Future;
use std::sync::Arc;

use futures_util::future::OptionFuture;

use super::action::{Action, Recovery};
use super::arc_callback::ArcCallback;
use super::hook::name;
use super::hook_set::HookSet;
use super::members::Members;
use super::phase::Mode;
use super::position::Position;
use super::probe::{WrapperCall, failed_attempts};
use super::rules::CallbackRules;
use crate::call::Request;
use crate::context::ConversationId;
use crate::error::{CallSite, Error, ErrorKind, Result};
use crate::stream::{CallbackDecision, CallbackNote, EventKind};

/// A call inside a band: its request, and which callbacks have run for it.
///
/// The hooks themselves run in [`life`](super::life).
pub(super) struct CallState<R: Request> {
    pub(super) request: R,
    pub(super) rules: CallbackRules,
    /// The position of the band in an agent's stack, if it is in one.
    pub(super) position: Option<Position>,
    pub(super) callbacks: Arc<Members<R>>,
    /// The number of callbacks that have been entered. They run in order, so those that were
    /// entered are the first few, and of the later ones the first few guards.
    pub(super) entered: usize,
    pub(super) guards_entered: usize,
}

impl<R: Request> CallState<R> {
    /// Returns the next callback whose `hook` is to run. `passed` counts those with this hook that
    /// were passed. Callbacks before it that lack only this hook count as entered, so their
    /// `on_end` runs.
    #[inline]
    pub(super) fn next(&mut self, passed: &mut usize, mode: Mode, hook: HookSet) -> Option<usize> {
        let guards_alone = mode == Mode::Guards;
        // Two counts: where a decision skips the others, they stay where they were, and only guards
        // go on.
        let entered = if guards_alone {
            &mut self.guards_entered
        } else {
            &mut self.entered
        };
        let callbacks = self.callbacks.with(hook);
        let is_reversed = self.rules.unwinds && hook != HookSet::BEFORE;
        while *passed < callbacks.len() {
            let place = if is_reversed {
                callbacks.len() - 1 - *passed
            } else {
                *passed
            };
            let index = callbacks[place];
            *passed += 1;
            if !guards_alone || self.callbacks[index].guards() {
                // Never less: each phase begins again with the first callback.
                *entered = (*entered).max(index + 1);
                return Some(index);
            }
        }
        // The phase is over, so callbacks behind the last one with this hook count as well.
        *entered = self.callbacks.all().len();
        None
    }

    /// Returns whether a hook of the callback has run, or would have if it had one.
    pub(super) fn has_entered(&self, index: usize) -> bool {
        index < self.entered || index < self.guards_entered && self.at(index).guards()
    }

    pub(super) fn at(&self, index: usize) -> &ArcCallback<R> {
        &self.callbacks[index]
    }

    /// Tells of a hook's decision, if somebody listens; before the call, it then waits for the
    /// consumer. One that changes what happens is logged as well.
    //
    // Not an async fn, which would store the event, and have room for the wait twice: that of every
    // band, whether anybody is told or not.
    pub(super) fn tell<D>(
        &self,
        index: usize,
        hook: &'static str,
        decision: &Result<D>,
    ) -> OptionFuture<impl Future>
    where
        for<'a> CallbackDecision: From<&'a D>,
    {
        let decision = match decision {
            Ok(decision) => decision.into(),
            // Not the error itself: a callback outside may hide its text.
            Err(error) => CallbackDecision::Failed(error.kind()),
        };
        let context = self.request.context();
        if !matches!(
            decision,
            CallbackDecision::Continue | CallbackDecision::Propagate
        ) {
            let conversation = context.extensions().get::<ConversationId>();
            tracing::debug!(
                run_id = context.run_id(),
                conversation = conversation.map(ConversationId::as_str),
                call = %CallSite::of(&self.request),
                callback = %name(self.at(index).get()),
                hook,
                ?decision,
                "callback decided"
            );
        }
        let listeners = context.listeners();
        if !listeners.is_told() {
            return None.into();
        }
        let tool_call = context.tool_call_message();
        let wrapper = WrapperCall::around(context, R::CALL);
        let note = EventKind::Callback(Arc::new(CallbackNote {
            callback: name(self.at(index).get()),
            wrapper: wrapper.and_then(|carried| Some(carried.entered()?.index())),
            hook,
            call: R::CALL,
            name: self.request.name().map(Into::into),
            tool_call: tool_call.map(|(message, index)| message.tool_call(index)),
            attempt: failed_attempts(context, R::CALL),
            decision,
            reasons: wrapper.map_or_else(Vec::new, |carried| carried.new_reasons()),
        }));
        let sending = if hook == "before" {
            Some(listeners.tell(note))
        } else {
            // The call has been made. If it were dropped here while the consumer is slow, its
            // result would be lost.
            listeners.note(note);
            None
        };
        sending.into()
    }

    /// Holds a tool call that a guard has interrupted, until that guard allows it: another agent
    /// that lacks the guard must not make the call meanwhile.
    pub(super) fn hold(&self, index: usize, decision: &Result<Action<Box<R::Response>>>) {
        let context = self.request.context();
        // By the callback's name, so that only the guard that holds the call can release it.
        match decision {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                context.hold_call(&name(self.at(index).get()));
            }
            Ok(Action::Continue | Action::SkipRest)
                if context.private_state().has_data_about_calls() =>
            {
                context.release_call(&name(self.at(index).get()));
            }
            Ok(Action::Continue | Action::SkipRest) => {}
            // The guard has answered or failed the call, so it is not made.
            Ok(Action::Respond(_)) | Err(_) => {}
        }
    }

    /// Returns whether a response of this callback takes effect under this rule.
    pub(super) fn may_respond(&self, index: usize, hook: &'static str, rule: bool) -> bool {
        // A call that a guard blocks stays blocked under any rules.
        let takes_effect = rule || self.at(index).guards();
        if !takes_effect {
            let call = CallSite::of(&self.request);
            let run_id = self.request.context().run_id();
            tracing::warn!(run_id, %call, hook, "ignored response: these semantics let no callback respond here");
        }
        takes_effect
    }

    /// Returns an error of a hook with the names of the call, the callback and the hook, and
    /// records it if it ends more than the call.
    pub(super) fn raised(&self, error: Error, index: usize, hook: &'static str) -> Error {
        let error = error
            .by(|| name(self.at(index).get()), hook)
            .in_call(|| CallSite::of(&self.request));
        // Recorded where it is raised, before any code outside sees the error: nothing can undo an
        // ending. After the call it keeps its response, whatever the run does.
        self.request
            .context()
            .endings()
            .latch::<R>(&error, hook == "after");
        error
    }
}

impl<T> From<&Action<T>> for CallbackDecision {
    fn from(action: &Action<T>) -> Self {
        match action {
            Action::Continue => Self::Continue,
            Action::SkipRest => Self::SkipRest,
            Action::Respond(_) => Self::Respond,
        }
    }
}

impl<T> From<&Recovery<T>> for CallbackDecision {
    fn from(recovery: &Recovery<T>) -> Self {
        match recovery {
            Recovery::Propagate => Self::Propagate,
            Recovery::Fail(_) => Self::Fail,
            Recovery::Retry => Self::Retry,
            Recovery::Fallback(_) => Self::Fallback,
        }
    }
}
