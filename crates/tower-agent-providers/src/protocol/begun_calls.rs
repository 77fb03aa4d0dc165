use std::sync::Arc;

use super::fault::Fault;
use tower_agent::message::CallIds;
use tower_agent::model::ModelRequest;

/// The tool calls of an answer that have begun.
#[derive(Debug, Default)]
pub(crate) struct BegunCalls {
    ids: CallIds,
    count: usize,
    /// The length of the conversation, which makes ids unique across turns.
    message_count: usize,
}

impl BegunCalls {
    pub(crate) fn new(request: &ModelRequest) -> Self {
        Self {
            message_count: request.messages().len(),
            ..Self::default()
        }
    }

    /// Returns whether a call has begun.
    pub(crate) fn has_any(&self) -> bool {
        self.count > 0
    }

    /// Begins the next call. Returns its number, and its id: some servers send none, or the same
    /// one for each call, and results are matched by it.
    pub(crate) fn begin(&mut self, id: impl Into<Arc<str>>) -> (usize, Arc<str>) {
        let number = self.count;
        self.count += 1;
        let other = || format!("call_{}_{number}", self.message_count);
        (number, self.ids.claim(&id.into(), other))
    }
}

impl Fault {
    /// Creates the fault of a tool call without a name. It cannot run, and an answer without it
    /// would look complete.
    pub(crate) fn nameless_call() -> Self {
        Self::protocol("the server sent a tool call without a name")
    }

    /// Creates the fault of arguments that belong to no tool call of the answer.
    #[cfg(feature = "anthropic")]
    pub(crate) fn unstarted_call() -> Self {
        Self::protocol("the server sent arguments of a tool call that has not started")
    }
}
