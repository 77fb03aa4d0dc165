use std::hash::{Hash, Hasher};

use crate::conversation::CallName;
use crate::message::{Message, MessageId};

/// The tool call that a call is made in. A clone counts one reference.
#[derive(Clone, Debug)]
pub(super) struct ToolCallScope {
    message: Message,
    /// The place of the call among those of the message.
    index: usize,
}

impl ToolCallScope {
    /// Creates the scope of the call at this place among those of the message.
    pub(super) fn new(message: Message, index: usize) -> Self {
        Self { message, index }
    }

    /// Returns the provider's id.
    pub(super) fn id(&self) -> Option<&str> {
        let call = self.message.tool_calls().nth(self.index)?;
        Some(&call.id)
    }

    /// Returns the id of the message, and the place of the call there.
    pub(super) fn place(&self) -> Option<(&MessageId, usize)> {
        Some((self.message.id()?, self.index))
    }

    /// Returns the name that is unique in the conversation.
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
