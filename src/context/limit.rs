use super::run_context::RunContext;
use crate::call_kind::CallKind;
use crate::error::{Error, ErrorKind};

impl RunContext {
    /// Returns why the call is blocked, although callbacks run for it.
    pub(crate) fn beyond_limit(&self, kind: CallKind) -> Option<Error> {
        (self.beyond_limit && kind == CallKind::Model).then(|| self.limit_reached(self.iteration))
    }

    /// Makes an ended agent fail, so that its response is not used.
    pub(crate) fn withhold(&self, error: &Error) {
        drop(self.scope.withheld.set(error.clone()));
    }

    /// Returns the error of an agent that has reached its limit of model calls.
    pub(crate) fn limit_reached(&self, made: u32) -> Error {
        Error::new(
            ErrorKind::MaxIterations,
            format!(
                "no final answer after {made} model call{}",
                if made == 1 { "" } else { "s" }
            ),
        )
    }
}
