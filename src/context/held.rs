//! Tool calls that guards hold, and other data about calls in the private state.

use std::fmt;

use serde_json::{Value, json};

use super::run_context::RunContext;
use crate::error::{Error, ErrorKind};
use crate::state::key_of_call;

/// The source of the error of a call that is left to the agent that was interrupted in it.
#[derive(Debug, thiserror::Error)]
#[error("the call stays open")]
pub(crate) struct StaysOpen;

impl StaysOpen {
    /// Returns the error of a run that is resumed with another agent than was interrupted.
    pub(crate) fn error(why: impl fmt::Display) -> Error {
        let message =
            format!("{why}; the call stays open: resume with the agent that was interrupted");
        Error::new(ErrorKind::InvalidRequest, message).with_source(Self)
    }
}

const HELD: &str = "held";

impl RunContext {
    /// Returns the key in the [private state](Self::private_state) for data of `name` about this
    /// tool call. The data is removed once the call has a result, and not before: a run that is
    /// interrupted in the call finds it again when it resumes.
    #[must_use]
    pub fn call_key(&self, name: &str) -> String {
        key_of_call(&self.call_path(), name)
    }

    /// Returns the key in the [private state](Self::private_state) for data of `name` about the
    /// tool call that this agent works in: the [`call_key`](Self::call_key) of that call. `None` if
    /// it works in none.
    #[must_use]
    pub fn outer_call_key(&self, name: &str) -> Option<String> {
        let path = self.scope.outer_call_path()?;
        Some(key_of_call(&path, name))
    }

    /// Holds this tool call until `guard` [releases](Self::release_call) it or the call has a
    /// result. No run of the conversation executes the tool before, not even with an agent that
    /// lacks the guard: its run then fails, and the call stays open.
    ///
    /// Use it in a layer that interrupts the run and must decide about the call when the run
    /// resumes. The calls that a [guard](crate::Callback::is_guard) interrupts are held for it
    /// anyway.
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
        let mut guards = guards_holding(self);
        if !guards.iter().any(|holding| holding == guard) {
            guards.push(guard.to_owned());
            self.private_state().set(self.call_key(HELD), json!(guards));
        }
    }

    /// Releases this tool call, which `guard` has [held](Self::hold_call).
    pub fn release_call(&self, guard: &str) {
        let mut guards = guards_holding(self);
        let Some(at) = guards.iter().position(|holding| holding == guard) else {
            return;
        };
        guards.remove(at);
        let key = self.call_key(HELD);
        if guards.is_empty() {
            // An empty list would stay in every checkpoint of the conversation.
            self.private_state().remove(&key);
        } else {
            self.private_state().set(key, json!(guards));
        }
    }
}

pub(super) fn guards_holding(context: &RunContext) -> Vec<String> {
    let Some(Value::Array(guards)) = context.private_state().get(&context.call_key(HELD)) else {
        return Vec::new();
    };
    guards
        .iter()
        .filter_map(|guard| guard.as_str().map(str::to_owned))
        .collect()
}
