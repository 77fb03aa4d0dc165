use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a provider added to a piece of the conversation and must get back with it.
///
/// Kept apart by provider, so that a conversation can move from one to another.
///
/// ```
/// use serde_json::json;
/// use tower_agent::ProviderData;
///
/// let mut data = ProviderData::default();
/// data.set("anthropic", json!({ "signature": "EqQ" }));
/// assert_eq!(data.get("anthropic"), Some(&json!({ "signature": "EqQ" })));
/// assert_eq!(data.get("openai"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProviderData(Option<Arc<BTreeMap<String, Value>>>);

impl ProviderData {
    /// What `provider` added.
    #[must_use]
    pub fn get(&self, provider: &str) -> Option<&Value> {
        self.0.as_ref()?.get(provider)
    }

    /// Keeps `value` for `provider`, in place of what it added before.
    pub fn set(&mut self, provider: impl Into<String>, value: Value) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(provider.into(), value);
    }

    /// Whether no provider added anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|map| map.is_empty())
    }
}
