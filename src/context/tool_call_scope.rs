use std::sync::Arc;

use crate::conversation::CallName;

/// The tool call that a call is made in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ToolCallScope {
    /// The provider's id.
    pub(super) id: Arc<str>,
    /// The name that is unique in the conversation.
    pub(super) name: CallName,
}
