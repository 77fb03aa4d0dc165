//! Errors that end more than their call.

use super::Request;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind};

impl RunContext {
    /// Records an error that ends more than its call.
    pub(crate) fn latch<R: Request>(&self, error: &Error) {
        self.remember::<R>(error, false);
    }

    /// Records an error that ends more than its call, although the call has a result.
    pub(crate) fn latch_answered<R: Request>(&self, error: &Error) {
        self.remember::<R>(error, true);
    }

    fn remember<R: Request>(&self, error: &Error, answered: bool) {
        if error.kind() == ErrorKind::Aborted {
            self.abort(error);
            if !R::OUTLIVES_ABORT {
                return;
            }
        }
        if error.is_ending() {
            self.end(R::CALL, error, answered);
        }
    }

    /// Returns why a call of this kind must not start.
    pub(crate) fn refusal<R: Request>(&self) -> Option<Error> {
        self.abort_of::<R>().or_else(|| self.closed_to(R::CALL))
    }

    /// Returns the ending that this very call has caused, whatever its result.
    pub(crate) fn ending<R: Request>(&self) -> Option<Error> {
        self.abort_of::<R>().or_else(|| self.ended_by(R::CALL))
    }

    fn abort_of<R: Request>(&self) -> Option<Error> {
        self.aborted().filter(|_| !R::OUTLIVES_ABORT).cloned()
    }
}
