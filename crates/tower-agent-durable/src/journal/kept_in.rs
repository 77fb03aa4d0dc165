use serde::{Deserialize, Serialize};
use tower_agent::RunContext;
use tower_agent_conversations::{ConversationKey, Policy, StoreError, to_json};

/// The stored conversation that a run is part of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptIn {
    pub(super) policy: Policy,
    pub(super) key: ConversationKey,
}

impl KeptIn {
    /// Returns the conversation of a run, if a policy keeps it.
    pub(super) fn of(context: &RunContext) -> Option<Self> {
        let policy = Policy::of(context)?;
        let key = ConversationKey::of(context)?.clone();
        Some(Self { policy, key })
    }

    /// Returns a run's conversation as it is stored.
    pub(super) fn to_text(kept_in: Option<&Self>) -> Result<String, StoreError> {
        kept_in.map_or_else(|| Ok(String::new()), to_json)
    }

    pub(super) fn from_text(text: &str) -> Result<Option<Self>, StoreError> {
        if text.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(text).map_err(StoreError::data)
    }
}
