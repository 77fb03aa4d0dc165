use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::state::State;

/// The entries that a tool call reads and writes in the [state](crate::RunContext::state), with
/// everything in it: agents that work in the call included. See [`ToolRequest::trace_state`].
///
/// [`ToolRequest::trace_state`]: crate::ToolRequest::trace_state
#[derive(Clone)]
pub struct StateTrace {
    outside: State,
    /// A handle that notes what is done through it, made when the call first uses the state. Few
    /// do.
    inside: Arc<OnceLock<State>>,
}

impl StateTrace {
    pub(super) fn new(outside: State) -> Self {
        Self {
            outside,
            inside: Arc::default(),
        }
    }

    pub(super) fn inside(&self) -> &State {
        self.inside.get_or_init(|| self.outside.traced())
    }

    /// Returns whether the call has used the state.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.inside.get().is_some()
    }

    /// Returns the entries that the call has read, each value once, except those that it had
    /// written itself.
    #[must_use]
    pub fn read(&self) -> Vec<(String, Value)> {
        let inside = self.inside.get();
        inside.map(State::entries_read).unwrap_or_default()
    }

    /// Returns the keys that the call has written or removed.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        let inside = self.inside.get();
        inside.map(State::keys_written).unwrap_or_default()
    }

    /// Returns whether nobody else has written or removed this key since the call did.
    #[must_use]
    pub fn has_written_last(&self, key: &str) -> bool {
        let inside = self.inside.get();
        inside.is_some_and(|state| state.has_written_last(key))
    }

    /// Returns the state by a handle that is not traced.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.outside
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
