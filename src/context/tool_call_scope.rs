use std::hash::{Hash, Hasher};

use crate::conversation::CallName;
use crate::message::{Message, MessageId};

/// The tool call that a call is made in. A clone counts one reference.
#[derive(Clone, Debug)]
pub(super) struct ToolCallScope {
    message: Message,
    index: usize,
}

impl ToolCallScope {
    pub(super) fn new(message: Message, index: usize) -> Self {
        Self { message, index }
    }

    pub(super) fn id(&self) -> Option<&str> {
        let call = self.message.tool_calls().nth(self.index)?;
        Some(&call.id)
    }

    pub(super) fn place(&self) -> Option<(&MessageId, usize)> {
        Some((self.message.id()?, self.index))
    }

    pub(super) fn name(&self) -> CallName {
        CallName::new(&self.message, self.index)
    }
}

impl PartialEq for ToolCallScope {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.message.id() == other.message.id()
    }
}

impl Eq for ToolCallScope {}

impl Hash for ToolCallScope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.message.id().hash(state);
        self.index.hash(state);
    }
}
