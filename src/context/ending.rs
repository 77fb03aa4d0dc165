//! Errors that end more than the call that they come from.

use super::RunContext;
use super::latch::Call;
use crate::call::CallKind;
use crate::error::Error;

impl RunContext {
    fn call(&self, kind: CallKind) -> Call {
        let tool = self.shared_tool_call_id();
        Call { kind, turn: self.iteration, tool }
    }

    /// Remembers an error that ends more than the call it comes from.
    pub(crate) fn latch(&self, kind: CallKind, error: &Error) {
        if error.is_ending() {
            self.scope.latch(self.call(kind), error, false);
        }
    }

    /// Remembers an error that ends more than the call, which has its answer already.
    pub(crate) fn latch_answered(&self, kind: CallKind, error: &Error) {
        if error.is_ending() {
            self.scope.latch(self.call(kind), error, true);
        }
    }

    /// Why a call of this kind must not start any more.
    pub(crate) fn refusal(&self, kind: CallKind) -> Option<Error> {
        self.scope.refusal(&self.call(kind))
    }

    /// The ending that this very call has brought about, whatever its result says.
    pub(crate) fn ending(&self, kind: CallKind) -> Option<Error> {
        self.scope.ending(&self.call(kind))
    }

    /// Whether this very call waits for somebody, whatever its result says.
    pub(crate) fn waits(&self, kind: CallKind) -> bool {
        self.scope.latch.waits(&self.call(kind))
    }
}
