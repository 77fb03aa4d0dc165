//! Errors that end more than the call that they come from.

use super::Request;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind};

impl RunContext {
    /// Remembers an error that ends more than the call it comes from.
    pub(crate) fn latch<R: Request>(&self, error: &Error) {
        self.remember::<R>(error, false);
    }

    /// Remembers an error that ends more than the call, which has its answer already.
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

    /// Why a call of this kind must not start any more.
    pub(crate) fn refusal<R: Request>(&self) -> Option<Error> {
        self.abort_of::<R>().or_else(|| self.closed_to(R::CALL))
    }

    /// The ending that this very call has brought about, whatever its result says.
    pub(crate) fn ending<R: Request>(&self) -> Option<Error> {
        self.abort_of::<R>().or_else(|| self.ended_by(R::CALL))
    }

    fn abort_of<R: Request>(&self) -> Option<Error> {
        self.aborted().filter(|_| !R::OUTLIVES_ABORT).cloned()
    }
}
