use serde::{Deserialize, Serialize};
use tower_agent::RunContext;
use tower_agent_conversations::{ConversationKey, Policy, StoreError, to_json};

/// The stored conversation of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptIn {
    /// The policy that keeps it. Without one, a run only names a conversation whose messages may be
    /// its own.
    pub(super) policy: Option<Policy>,
    pub(super) key: ConversationKey,
}

impl KeptIn {
    /// Returns the conversation that a run names.
    pub(super) fn of(context: &RunContext) -> Option<Self> {
        let policy = Policy::of(context);
        let key = ConversationKey::of(context)?.clone();
        Some(Self { policy, key })
    }

    /// Returns a run's conversation as it is stored: that of which it is a part.
    pub(super) fn to_text(conversation: Option<&Self>) -> Result<String, StoreError> {
        let kept = conversation.filter(|conversation| conversation.policy.is_some());
        kept.map_or_else(|| Ok(String::new()), to_json)
    }

    pub(super) fn from_text(text: &str) -> Result<Option<Self>, StoreError> {
        if text.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(text).map_err(StoreError::data)
    }
}
