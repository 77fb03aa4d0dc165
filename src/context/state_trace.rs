use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::state::State;

/// The entries that a tool call reads and writes in the [state](crate::RunContext::state), with
/// everything in it: agents that work in the call included. See [`ToolRequest::trace_state`].
///
/// [`ToolRequest::trace_state`]: crate::ToolRequest::trace_state
pub struct StateTrace(Arc<TracedState>);

/// A state with a handle that notes what is done through it.
pub(super) struct TracedState {
    outside: State,
    /// Made when the call first uses the state. Few do.
    inside: OnceLock<State>,
}

impl StateTrace {
    pub(super) fn new(traced: Arc<TracedState>) -> Self {
        Self(traced)
    }

    /// Returns whether the call has used the state.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.0.inside.get().is_some()
    }

    /// Returns the entries that the call has read, each value once, except those that it had
    /// written itself.
    #[must_use]
    pub fn read(&self) -> Vec<(String, Value)> {
        let inside = self.0.inside.get();
        inside.map(State::entries_read).unwrap_or_default()
    }

    /// Returns the keys that the call has written or removed.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        let inside = self.0.inside.get();
        inside.map(State::keys_written).unwrap_or_default()
    }

    /// Returns whether nobody else has written or removed this key since the call did.
    #[must_use]
    pub fn has_written_last(&self, key: &str) -> bool {
        let inside = self.0.inside.get();
        inside.is_some_and(|state| state.has_written_last(key))
    }

    /// Returns the state by a handle that is not traced.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.0.outside
    }
}

impl TracedState {
    pub(super) fn new(outside: State) -> Self {
        Self {
            outside,
            inside: OnceLock::new(),
        }
    }

    pub(super) fn state(&self) -> &State {
        self.inside.get_or_init(|| self.outside.traced())
    }
}

impl fmt::Debug for StateTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateTrace")
            .field("read", &self.read())
            .field("written", &self.written())
            .finish()
    }
}
