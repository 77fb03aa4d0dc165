use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::lock::lock;

/// A session's state: a JSON object, given with the request and returned with the response.
///
/// A handle: clones show the same state. Everything in a run shares it, sub-agents included.
///
/// ```
/// use serde_json::json;
/// use tower_agent::State;
///
/// let state = State::from_iter([("theme".to_owned(), json!("dark"))]);
/// state.set("visits", 3);
/// state.remove("theme");
/// assert_eq!(state.get("visits"), Some(json!(3)));
/// assert_eq!(state.delta().set["visits"], 3);
/// assert_eq!(state.delta().removed, ["theme"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct State(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    now: Map<String, Value>,
    /// What changed since the run began, with what was there then.
    before: BTreeMap<String, Option<Value>>,
}

/// How a state differs from what the run began with, by top-level key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateDelta {
    /// Keys with another value than at the start, or with their first.
    pub set: Map<String, Value>,
    /// Keys that are gone.
    pub removed: Vec<String>,
}

impl State {
    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        lock(&self.0).now.get(key).cloned()
    }

    /// Stores `value` under `key`.
    pub fn set(&self, key: impl Into<String>, value: impl Into<Value>) {
        let key = key.into();
        let mut inner = lock(&self.0);
        let old = inner.now.insert(key.clone(), value.into());
        inner.before.entry(key).or_insert(old);
    }

    /// Forgets the value under `key` and returns it.
    pub fn remove(&self, key: &str) -> Option<Value> {
        let mut inner = lock(&self.0);
        let old = inner.now.remove(key)?;
        inner.before.entry(key.to_owned()).or_insert_with(|| Some(old.clone()));
        Some(old)
    }

    /// A copy of the whole state.
    #[must_use]
    pub fn snapshot(&self) -> Map<String, Value> {
        lock(&self.0).now.clone()
    }

    /// A run begins: from here on changes count.
    pub(super) fn begin(&self) {
        lock(&self.0).before.clear();
    }

    /// What changed since the run began.
    #[must_use]
    pub fn delta(&self) -> StateDelta {
        let inner = lock(&self.0);
        let mut delta = StateDelta::default();
        for (key, old) in &inner.before {
            match inner.now.get(key) {
                Some(now) if old.as_ref() == Some(now) => {}
                Some(now) => drop(delta.set.insert(key.clone(), now.clone())),
                None if old.is_some() => delta.removed.push(key.clone()),
                None => {}
            }
        }
        delta
    }
}

impl From<Map<String, Value>> for State {
    fn from(now: Map<String, Value>) -> Self {
        Self(Arc::new(Mutex::new(Inner { now, before: BTreeMap::new() })))
    }
}

impl FromIterator<(String, Value)> for State {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self::from(entries.into_iter().collect::<Map<_, _>>())
    }
}
