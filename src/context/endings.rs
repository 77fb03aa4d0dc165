use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::held::{StaysOpen, guards_holding};
use super::latch::{Latch, LatchedCall};
use super::lease::Lease;
use super::run_context::RunContext;
use crate::call_kind::CallKind;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;

/// The end of a run, as one call meets it. The use that calls make of it is in `call/ending.rs`.
#[derive(Clone, Copy)]
pub(crate) struct Endings<'a>(pub(crate) &'a RunContext);

impl RunContext {
    #[inline]
    pub(crate) fn endings(&self) -> Endings<'_> {
        Endings(self)
    }
}

impl<'a> Endings<'a> {
    /// Returns whether the run or this part of it was cancelled, or has lost its lease.
    #[inline]
    pub(crate) fn is_cancelled(self) -> bool {
        let scope = &self.0.scope;
        let settings = &scope.settings;
        let own = settings.own_token.as_ref();
        settings.token.is_cancelled()
            || own.is_some_and(CancellationToken::is_cancelled)
            || scope.run.lease.get().is_some_and(Lease::is_over)
    }

    /// Ends the run that was cancelled, or the part of it, and returns its error.
    #[cold]
    pub(crate) fn cancel(self) -> Error {
        let scope = &self.0.scope;
        if scope.run.token.is_cancelled() {
            let aborted = &scope.run.aborted;
            return aborted.get_or_init(Error::run_cancelled).clone();
        }
        if scope.run.lease.get().is_some_and(Lease::is_over) {
            let aborted = &scope.run.aborted;
            return aborted.get_or_init(Error::lease_over).clone();
        }
        // Tasks that the agent has started have this token, and not the request's.
        scope.settings.token.cancel();
        let error = Error::new(ErrorKind::Cancelled, "the request's token was cancelled");
        // Code outside this part reads it as any other error.
        self.end(CallKind::Agent, &error, false);
        error
    }

    pub(crate) fn abort(self, error: &Error) {
        // The first stands.
        drop(self.0.scope.run.aborted.set(error.clone()));
    }

    /// Records that a call has ended more than itself, perhaps with a result.
    pub(crate) fn end(self, kind: CallKind, error: &Error, answered: bool) {
        self.0.scope.latch.set(self.call(kind), error, answered);
    }

    pub(crate) fn note_refused(self) {
        for latch in self.latches() {
            let call = self.call(CallKind::Tool);
            lock(&latch.entries).refused.push(call);
        }
    }

    /// Notes that an attempt was dropped in its tool, which may have had its effect.
    #[cold]
    pub(crate) fn note_dropped(self) {
        for latch in self.latches() {
            let call = self.call(CallKind::Tool);
            lock(&latch.entries).dropped.push(call);
        }
    }

    /// Returns whether this tool call has failed without reaching its tool.
    pub(crate) fn is_unmade(self) -> bool {
        self.0.scope.latch.is_unmade(&self.call(CallKind::Tool))
    }

    pub(crate) fn is_dropped(self) -> bool {
        let entries = lock(&self.0.scope.latch.entries);
        entries.dropped.contains(&self.call(CallKind::Tool))
    }

    pub(crate) fn note_blocked(self) {
        for latch in self.latches() {
            latch.blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn blocks(self) -> u32 {
        self.0.scope.latch.blocks.load(Ordering::Relaxed)
    }

    /// Returns whether a tool has kept the thread, and nobody else had it since.
    #[inline]
    pub(crate) fn has_blocked(self) -> bool {
        self.blocks() != self.0.scope.latch.let_go.load(Ordering::Relaxed)
    }

    /// Notes that others had the thread after tools have kept it so often.
    pub(crate) fn let_go(self, blocks: u32) {
        self.0.scope.latch.let_go.store(blocks, Ordering::Relaxed);
    }

    /// Returns the latches of the agent: that of this part, and of those around it.
    fn latches(self) -> impl Iterator<Item = &'a Latch> {
        let scope = &self.0.scope;
        let parts = scope.around();
        parts
            .take_while(|part| part.node.path == scope.node.path)
            .map(|part| &part.latch)
    }

    /// Makes an ended agent fail, so that its response is not used.
    pub(crate) fn withhold(self, error: &Error) {
        drop(self.0.scope.latch.withheld.set(error.clone()));
    }

    /// Returns the recorded ending that blocks another call of this kind.
    #[inline]
    pub(crate) fn closed_to(self, kind: CallKind) -> Option<Error> {
        self.ask(kind, Latch::refusal).flatten()
    }

    /// Returns the ending of this very call.
    #[inline]
    pub(crate) fn ended_by(self, kind: CallKind) -> Option<Error> {
        if kind == CallKind::Agent
            && let Some(withheld) = self.0.scope.latch.withheld.get()
        {
            return Some(withheld.clone());
        }
        self.ask(kind, Latch::ending).flatten()
    }

    /// Returns whether this very call waits on an interrupt, whatever its result.
    #[inline]
    pub(crate) fn waits(self, kind: CallKind) -> bool {
        self.ask(kind, Latch::waits) == Some(true)
    }

    /// Asks the latch about a call of this kind. `None` if nothing has ended the run.
    #[inline]
    fn ask<T>(self, kind: CallKind, question: fn(&Latch, &LatchedCall) -> T) -> Option<T> {
        let latch = &self.0.scope.latch;
        latch.is_closed().then(|| question(latch, &self.call(kind)))
    }

    #[cold]
    fn call(self, kind: CallKind) -> LatchedCall {
        LatchedCall {
            kind,
            turn: self.0.iteration,
            tool: self.0.tool_call.clone(),
        }
    }

    /// Returns why the call is blocked, although callbacks run for it.
    #[inline]
    pub(crate) fn beyond_limit(self, kind: CallKind) -> Option<Error> {
        let is_blocked = self.0.beyond_limit && kind == CallKind::Model;
        is_blocked.then(|| limit_reached(self.0.iteration))
    }

    /// Returns why this tool call is blocked: a guard that holds it has not run.
    #[cold]
    pub(crate) fn held(self) -> Option<Error> {
        let guards = guards_holding(self.0);
        let guard = guards.first()?;
        Some(StaysOpen::error(format_args!(
            "`{guard}` has an open question about this call, but does not wrap this tool"
        )))
    }
}

pub(crate) fn limit_reached(made: u32) -> Error {
    let plural = if made == 1 { "" } else { "s" };
    let message = format!("no final answer after {made} model call{plural}");
    Error::new(ErrorKind::MaxIterations, message)
}
