use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::depth;

/// Provider data of a part of the conversation, which must be sent back with it.
///
/// It is stored by provider, so that a conversation can move from one provider to another.
///
/// ```
/// use serde_json::json;
/// use tower_agent::message::ProviderData;
///
/// let mut data = ProviderData::default();
/// data.set("anthropic", json!({ "signature": "EqQ" }));
/// assert_eq!(data.get("anthropic"), Some(&json!({ "signature": "EqQ" })));
/// assert_eq!(data.get("openai"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "BTreeMap<String, Value>")]
pub struct ProviderData(Option<Arc<BTreeMap<String, Value>>>);

impl ProviderData {
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Returns the data of `provider`.
    #[must_use]
    pub fn get(&self, provider: &str) -> Option<&Value> {
        self.0.as_ref()?.get(provider)
    }

    /// Stores the data of `provider`, replacing the previous data.
    pub fn set(&mut self, provider: impl Into<String>, value: Value) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(provider.into(), value);
    }

    pub(crate) fn remove(&mut self, provider: &str) -> Option<Value> {
        let removed = Arc::make_mut(self.0.as_mut()?).remove(provider);
        if self.is_empty() {
            // No data is always `None`, by which two messages compare equal.
            self.0 = None;
        }
        removed
    }

    /// Returns whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|map| map.is_empty())
    }
}

/// Serialised as a map, because a tagged enum cannot contain an option.
impl Serialize for ProviderData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        depth::check(&self.0)?;
        serializer.collect_map(self.0.iter().flat_map(|map| map.iter()))
    }
}

impl From<BTreeMap<String, Value>> for ProviderData {
    fn from(map: BTreeMap<String, Value>) -> Self {
        Self((!map.is_empty()).then(|| Arc::new(map)))
    }
}
