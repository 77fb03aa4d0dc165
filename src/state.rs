//! A session's state, and how it changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

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
    /// What the streams that watch have not told.
    watchers: Vec<Weak<Untold>>,
}

/// The changes of a state that a stream has not told.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    is_some: AtomicBool,
    changes: Mutex<BTreeMap<String, Change>>,
}

/// What has become of one key.
#[derive(Debug)]
struct Change {
    /// Whether the key was there when the stream was last told.
    was_there: bool,
    now: Option<Value>,
}

impl Untold {
    fn note(&self, key: &str, was_there: bool, now: Option<Value>) {
        let mut changes = lock(&self.changes);
        match changes.get_mut(key) {
            Some(change) => change.now = now,
            None => drop(changes.insert(key.to_owned(), Change { was_there, now })),
        }
        self.is_some.store(true, Ordering::Release);
    }

    /// The changes since this was last asked.
    #[inline]
    pub(crate) fn take(&self) -> Option<StateDelta> {
        // Nearly always there is nothing, and this is asked before every event.
        if !self.is_some.load(Ordering::Acquire) {
            return None;
        }
        let mut changes = lock(&self.changes);
        self.is_some.store(false, Ordering::Release);
        let mut delta = StateDelta::default();
        for (key, Change { was_there, now }) in std::mem::take(&mut *changes) {
            match now {
                Some(now) => drop(delta.set.insert(key, now)),
                None if was_there => delta.removed.push(key),
                None => {}
            }
        }
        (!delta.is_empty()).then_some(delta)
    }
}

impl Inner {
    /// Notes for the streams that watch what becomes of a key.
    fn note(&mut self, key: &str, was_there: bool, now: impl Fn() -> Option<Value>) {
        self.watchers.retain(|untold| {
            let untold = untold.upgrade();
            untold.inspect(|untold| untold.note(key, was_there, now())).is_some()
        });
    }
}

/// How a state differs from what it was before, by top-level key: in a response, from what the run
/// began with; in a stream, from what was last told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateDelta {
    /// Keys with another value than before, or with their first.
    pub set: Map<String, Value>,
    /// Keys that are gone.
    pub removed: Vec<String>,
}

impl StateDelta {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }

    /// Makes the same changes to a copy of the state.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::State;
    ///
    /// let state = State::default();
    /// let mut copy = state.snapshot();
    /// state.set("visits", 3);
    /// state.delta().apply(&mut copy);
    /// assert_eq!(copy["visits"], 3);
    /// ```
    pub fn apply(self, state: &mut Map<String, Value>) {
        self.removed.iter().for_each(|key| drop(state.remove(key)));
        state.extend(self.set);
    }
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
        let value = value.into();
        let exists = inner.now.contains_key(&key);
        inner.note(&key, exists, || Some(value.clone()));
        let old = inner.now.insert(key.clone(), value);
        inner.before.entry(key).or_insert(old);
    }

    /// Forgets the value under `key` and returns it.
    pub fn remove(&self, key: &str) -> Option<Value> {
        let mut inner = lock(&self.0);
        let old = inner.now.remove(key)?;
        inner.note(key, true, || None);
        inner.before.entry(key.to_owned()).or_insert_with(|| Some(old.clone()));
        Some(old)
    }

    /// Changes the value under `key` in place, `null` if there is none yet, and returns what
    /// `change` returns. No other change comes in between.
    ///
    /// `change` must not use the state itself.
    pub fn update<T>(&self, key: impl Into<String>, update: impl FnOnce(&mut Value) -> T) -> T {
        let key = key.into();
        let mut inner = lock(&self.0);
        let exists = inner.now.contains_key(&key);
        if !inner.before.contains_key(&key) {
            let old = inner.now.get(&key).cloned();
            inner.before.insert(key.clone(), old);
        }
        let mut value = inner.now.remove(&key).unwrap_or_default();
        let updated = update(&mut value);
        inner.note(&key, exists, || Some(value.clone()));
        inner.now.insert(key, value);
        updated
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).now.is_empty()
    }

    /// Forgets what stands under the keys of which `is_gone` says so.
    pub(crate) fn remove_all(&self, is_gone: impl Fn(&str) -> bool) {
        let keys: Vec<String> = {
            let inner = lock(&self.0);
            inner.now.keys().filter(|key| is_gone(key)).cloned().collect()
        };
        for key in keys {
            self.remove(&key);
        }
    }

    /// A copy of the whole state.
    #[must_use]
    pub fn snapshot(&self) -> Map<String, Value> {
        lock(&self.0).now.clone()
    }

    /// A run begins: from here on changes count.
    pub(crate) fn begin(&self) {
        lock(&self.0).before.clear();
    }

    /// The whole, from which on changes are noted for a stream.
    pub(crate) fn watch(&self, untold: &Arc<Untold>) -> Map<String, Value> {
        let mut inner = lock(&self.0);
        inner.watchers.push(Arc::downgrade(untold));
        inner.now.clone()
    }

    /// A stream is over that may have watched.
    pub(crate) fn unwatch(&self, untold: &Arc<Untold>) {
        let untold = Arc::as_ptr(untold);
        lock(&self.0).watchers.retain(|watcher| watcher.as_ptr() != untold);
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
        Self(Arc::new(Mutex::new(Inner { now, ..Inner::default() })))
    }
}

impl FromIterator<(String, Value)> for State {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self::from(entries.into_iter().collect::<Map<_, _>>())
    }
}
