//! Blocks tool calls on which a guard has an open question, even where that guard is not
//! registered.

use serde_json::{Value, json};

use super::run_context::RunContext;
use crate::error::{Error, ErrorKind};

/// The key under which the guards that hold a call are stored.
const HELD: &str = "held";

impl RunContext {
    /// Holds this tool call until `guard` [releases](Self::release_call) it or the call has a result. No
    /// run of the conversation executes the tool before, not even with an agent that lacks the guard: the
    /// call then fails.
    ///
    /// Use it in a layer that interrupts the run and must decide about the call when the run resumes.
    /// The calls that a [guard](crate::Callback::is_guard) interrupts are held for it anyway.
    ///
    /// ```
    /// use tower_agent::{Error, Interrupt, RunContext};
    ///
    /// fn ask(context: &RunContext) -> Error {
    ///     context.hold_call("Audit");
    ///     Error::interrupt(Interrupt::new(context.call_path(), "audit"))
    /// }
    /// # drop(ask);
    /// ```
    pub fn hold_call(&self, guard: &str) {
        let mut held = self.held();
        if !held.iter().any(|it| it == guard) {
            held.push(guard.to_owned());
            self.private_state().set(self.call_key(HELD), json!(held));
        }
    }

    /// Releases this tool call, which `guard` has [held](Self::hold_call).
    pub fn release_call(&self, guard: &str) {
        let mut held = self.held();
        let Some(at) = held.iter().position(|it| it == guard) else {
            return;
        };
        held.remove(at);
        let (private, key) = (self.private_state(), self.call_key(HELD));
        match held.is_empty() {
            true => drop(private.remove(&key)),
            false => private.set(key, json!(held)),
        }
    }

    /// Returns why this tool call is blocked: a guard that holds it has not run.
    pub(crate) fn withheld(&self) -> Option<Error> {
        let held = self.held();
        let guard = held.first()?;
        let message = format!(
            "`{guard}` has an open question about this call, but does not wrap this tool; resume \
             with the agent that was interrupted"
        );
        Some(Error::new(ErrorKind::InvalidRequest, message))
    }

    fn held(&self) -> Vec<String> {
        let private = self.private_state();
        // Usually nothing is stored, and every call checks this.
        if private.is_empty() {
            return Vec::new();
        }
        let Some(Value::Array(guards)) = private.get(&self.call_key(HELD)) else {
            return Vec::new();
        };
        guards
            .iter()
            .filter_map(|guard| guard.as_str().map(str::to_owned))
            .collect()
    }
}
