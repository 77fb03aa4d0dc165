use crate::context::RunContext;
use crate::conversation::Paused;
use crate::message::{Iter, Messages, Usage};

/// The argument of `stop_when`, which runs after each turn with tool calls.
///
/// A run that was [interrupted](crate::Error::interrupt) and goes on is the same run.
#[derive(Clone, Copy, Debug)]
pub struct LoopProgress<'a> {
    pub(super) context: &'a RunContext,
    pub(super) messages: &'a Messages,
    pub(super) earlier: &'a Paused,
    pub(super) iterations: u32,
}

impl<'a> LoopProgress<'a> {
    /// Returns the number of model calls of the agent.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Returns the messages of this run so far.
    #[must_use]
    pub fn new_messages(&self) -> Iter<'a> {
        self.messages.range(self.earlier.from)
    }

    /// Returns whether the model has called this tool in this run. Calls of an answer that was [cut
    /// off](crate::model::FinishReason::is_cut), which are not made, do not count.
    #[must_use]
    pub fn has_called(&self, tool: &str) -> bool {
        self.new_messages()
            .filter(|message| !message.finish_reason().is_cut())
            .any(|message| message.tool_calls().any(|call| &*call.name == tool))
    }

    /// Returns the tokens that this agent has used so far.
    pub fn usage(&self) -> Usage {
        self.earlier.usage + self.context.scope().tally.usage()
    }

    /// Returns the run.
    #[must_use]
    pub fn context(&self) -> &'a RunContext {
        self.context
    }
}
