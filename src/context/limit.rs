use super::RunContext;
use crate::call_kind::CallKind;
use crate::error::{Error, ErrorKind};

impl RunContext {
    /// The handle for a model call that is, or is not, one more than the agent may make.
    pub(crate) fn with_beyond_limit(self, beyond_limit: bool) -> Self {
        Self { beyond_limit, ..self }
    }

    /// Why the call is not made, although callbacks are asked about it.
    pub(crate) fn beyond_limit(&self, kind: CallKind) -> Option<Error> {
        (self.beyond_limit && kind == CallKind::Model).then(|| self.limit_reached(self.iteration))
    }

    /// Fails an agent that was ended, so that its answer is not given.
    pub(crate) fn withhold(&self, error: &Error) {
        drop(self.scope.withheld.set(error.clone()));
    }

    /// The error of an agent that has made as many model calls as it may.
    pub(crate) fn limit_reached(&self, made: u32) -> Error {
        Error::new(ErrorKind::MaxIterations, format!("{made} model calls and no answer"))
    }
}
