//! A tool call that a guard has stopped to ask about is not made where that guard does not stand.

use super::RunContext;
use crate::error::{Error, ErrorKind};

/// Under which name it is kept of a call which guard holds it.
const HELD: &str = "held";

impl RunContext {
    /// A guard has interrupted this tool call. No run makes it before that guard lets it through.
    pub(crate) fn hold(&self, guard: &str) {
        self.private_state().set(self.call_key(HELD), guard);
    }

    /// A guard lets this tool call through.
    pub(crate) fn release(&self, guard: &str) {
        if self.held().is_some_and(|held| held == guard) {
            self.private_state().remove(&self.call_key(HELD));
        }
    }

    /// Why this tool call is not made: the guard that has asked about it has not been asked.
    pub(crate) fn withheld(&self) -> Option<Error> {
        let guard = self.held()?;
        let message = format!(
            "`{guard}` has asked about this call, and does not stand around this tool: resume with \
             the agent that was interrupted"
        );
        Some(Error::new(ErrorKind::InvalidRequest, message))
    }

    fn held(&self) -> Option<String> {
        let private = self.private_state();
        // Nearly always nothing is kept, and this is asked of every call.
        if private.is_empty() {
            return None;
        }
        private.get(&self.call_key(HELD))?.as_str().map(str::to_owned)
    }
}
