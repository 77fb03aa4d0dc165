use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::depth;

/// Provider data of a part of the conversation, which must be sent back with it.
///
/// It is stored by provider, so that a conversation can move from one provider to another. Data
/// that means something only to the server that made it, such as a signature, has an
/// [issuer](Self::issuer) as well: several servers speak the protocol of one provider, and refuse
/// what another one has signed or sealed. Equal data of different issuers is equal.
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
pub struct ProviderData(Option<Arc<Stored>>);

#[derive(Clone, Default)]
struct Stored {
    data: BTreeMap<String, Value>,
    issuers: BTreeMap<Cow<'static, str>, Arc<str>>,
}

/// The issuer is no part of what the data says.
impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(&self.data);
        if !self.issuers.is_empty() {
            map.entry(&ISSUERS, &self.issuers);
        }
        map.finish()
    }
}

const ISSUERS: &str = "issuers";

impl ProviderData {
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Returns the data of `provider`.
    #[must_use]
    pub fn get(&self, provider: &str) -> Option<&Value> {
        self.0.as_ref()?.data.get(provider)
    }

    /// Stores the data of `provider`, replacing the previous data, whose issuer it keeps. Without
    /// one, every server that speaks the protocol of that provider is sent it.
    pub fn set(&mut self, provider: impl Into<String>, value: Value) {
        let stored = Arc::make_mut(self.0.get_or_insert_default());
        stored.data.insert(provider.into(), value);
    }

    /// Returns who made the data of `provider`, if it goes back to nobody else: the name of a
    /// company, or else of a host. The client of a provider sets it, and leaves out what another
    /// one has made.
    #[must_use]
    pub fn issuer(&self, provider: &str) -> Option<&str> {
        self.0.as_ref()?.issuers.get(provider).map(|name| &**name)
    }

    /// Sets who made the data of `provider`. Has no effect if there is none.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use tower_agent::message::ProviderData;
    /// let mut data = ProviderData::default();
    /// data.set("anthropic", json!({ "signature": "EqQ" }));
    /// data.set_issuer("anthropic", "moonshot");
    /// assert_eq!(data.issuer("anthropic"), Some("moonshot"));
    /// let stored = serde_json::to_string(&data)?;
    /// let stored: ProviderData = serde_json::from_str(&stored)?;
    /// assert_eq!(stored.issuer("anthropic"), Some("moonshot"));
    /// # Ok::<_, serde_json::Error>(())
    /// ```
    pub fn set_issuer(
        &mut self,
        provider: impl Into<Cow<'static, str>>,
        issuer: impl Into<Arc<str>>,
    ) {
        let provider = provider.into();
        if self.get(&provider).is_some() {
            let stored = Arc::make_mut(self.0.get_or_insert_default());
            stored.issuers.insert(provider, issuer.into());
        }
    }

    /// Removes the data of `provider` and returns it.
    pub fn remove(&mut self, provider: &str) -> Option<Value> {
        // Checked first, because changing shared data copies it.
        self.get(provider)?;
        let stored = Arc::make_mut(self.0.as_mut()?);
        stored.issuers.remove(provider);
        let removed = stored.data.remove(provider);
        if self.is_empty() {
            // No data is always `None`, by which two messages compare equal.
            self.0 = None;
        }
        removed
    }

    /// Returns whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|stored| stored.data.is_empty())
    }
}

/// Serialised as a map, because a tagged enum cannot contain an option.
impl Serialize for ProviderData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(stored) = &self.0 else {
            return serializer.collect_map::<&str, (), _>([]);
        };
        depth::check(&stored.data)?;
        if stored.issuers.is_empty() {
            return serializer.collect_map(&stored.data);
        }
        let issuers =
            (stored.issuers.iter()).map(|(name, issuer)| (name.to_string(), (**issuer).into()));
        let issuers = Value::Object(issuers.collect());
        let data = stored.data.iter().map(|(name, value)| (&**name, value));
        serializer.collect_map(data.chain([(ISSUERS, &issuers)]))
    }
}

impl From<BTreeMap<String, Value>> for ProviderData {
    fn from(mut data: BTreeMap<String, Value>) -> Self {
        let issuers = match data.remove(ISSUERS) {
            Some(Value::Object(issuers)) => issuers,
            _ => serde_json::Map::new(),
        };
        let issuers = issuers.into_iter().filter_map(|(name, issuer)| {
            // Only of data that is there, so that none is left behind where that is removed.
            let issuer = issuer.as_str().filter(|_| data.contains_key(&name))?;
            Some((Cow::Owned(name), issuer.into()))
        });
        let issuers = issuers.collect();
        Self((!data.is_empty()).then(|| Arc::new(Stored { data, issuers })))
    }
}
