use crate::context::RunContext;
use crate::message::{Iter, Messages, Usage};

/// What `stop_when` sees after each turn whose tools have run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    context: &'a RunContext,
    messages: &'a Messages,
    new_from: usize,
    iterations: u32,
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        context: &'a RunContext,
        messages: &'a Messages,
        new_from: usize,
        iterations: u32,
    ) -> Self {
        Self { context, messages, new_from, iterations }
    }

    /// How many model calls the agent has made.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Everything said in this run so far.
    #[must_use]
    pub fn new_messages(&self) -> Iter<'a> {
        self.messages.range(self.new_from)
    }

    /// Whether the model has called this tool in this run.
    #[must_use]
    pub fn has_called(&self, tool: &str) -> bool {
        self.new_messages().any(|message| message.tool_calls().any(|call| &*call.name == tool))
    }

    /// The tokens that this agent has used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.context.agent_usage()
    }

    /// The run.
    #[must_use]
    pub fn context(&self) -> &'a RunContext {
        self.context
    }
}
