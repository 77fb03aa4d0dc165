//! What has ended more than one call, as the calls of the run see it.

use super::latch::Call;
use super::run_context::RunContext;
use crate::call_kind::CallKind;
use crate::error::Error;

impl RunContext {
    /// Records that a call of this kind has ended more than itself. The call may already have a
    /// result.
    pub(crate) fn end(&self, kind: CallKind, error: &Error, answered: bool) {
        self.scope.latch.set(self.call(kind), error, answered);
    }

    /// Returns the recorded ending that blocks another call of this kind.
    #[inline]
    pub(crate) fn closed_to(&self, kind: CallKind) -> Option<Error> {
        self.scope.latch.refusal(|| self.call(kind))
    }

    /// Returns the ending of this very call.
    #[inline]
    pub(crate) fn ended_by(&self, kind: CallKind) -> Option<Error> {
        let withheld = (kind == CallKind::Agent)
            .then(|| self.scope.withheld.get())
            .flatten();
        withheld
            .cloned()
            .or_else(|| self.scope.latch.ending(|| self.call(kind)))
    }

    /// Returns whether this very call waits on an interrupt, whatever its result.
    pub(crate) fn waits(&self, kind: CallKind) -> bool {
        self.scope.latch.waits(|| self.call(kind))
    }

    #[cold]
    fn call(&self, kind: CallKind) -> Call {
        Call {
            kind,
            turn: self.iteration,
            tool: self.tool_call.clone(),
        }
    }
}
