//! Blocks tool calls on which a guard has an open question, even where that guard is not
//! registered.

use super::RunContext;
use crate::error::{Error, ErrorKind};

/// The key under which the guard that holds a call is stored.
const HELD: &str = "held";

impl RunContext {
    /// Holds this tool call for a guard. No run executes it until that guard releases it.
    pub(crate) fn hold(&self, guard: &str) {
        self.private_state().set(self.call_key(HELD), guard);
    }

    /// Releases this tool call.
    pub(crate) fn release(&self, guard: &str) {
        if self.held().is_some_and(|held| held == guard) {
            self.private_state().remove(&self.call_key(HELD));
        }
    }

    /// Returns why this tool call is blocked: the guard that holds it has not run.
    pub(crate) fn withheld(&self) -> Option<Error> {
        let guard = self.held()?;
        let message = format!(
            "`{guard}` has an open question about this call, but does not wrap this tool; resume \
             with the agent that was interrupted"
        );
        Some(Error::new(ErrorKind::InvalidRequest, message))
    }

    fn held(&self) -> Option<String> {
        let private = self.private_state();
        // Usually nothing is stored, and every call checks this.
        if private.is_empty() {
            return None;
        }
        private.get(&self.call_key(HELD))?.as_str().map(str::to_owned)
    }
}
