use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, RemoveOperation, ReplaceOperation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::lock::lock;
use crate::stream::{Patch, PatchOperation};

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
    changes: Mutex<Vec<PatchOperation>>,
}

impl Untold {
    fn add(&self, change: PatchOperation) {
        let mut changes = lock(&self.changes);
        changes.push(change);
        self.is_some.store(true, Ordering::Release);
    }

    /// The changes since this was last asked.
    #[inline]
    pub(crate) fn take(&self) -> Option<Patch> {
        // Nearly always there is nothing, and this is asked before every event.
        if !self.is_some.load(Ordering::Acquire) {
            return None;
        }
        let mut changes = lock(&self.changes);
        self.is_some.store(false, Ordering::Release);
        Some(Patch(std::mem::take(&mut changes)))
    }
}

impl Inner {
    fn note(&mut self, change: impl Fn() -> PatchOperation) {
        self.watchers.retain(|untold| {
            let untold = untold.upgrade();
            untold.inspect(|untold| untold.add(change())).is_some()
        });
    }
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
        let value = value.into();
        let exists = inner.now.contains_key(&key);
        inner.note(|| change(&key, value.clone(), exists));
        let old = inner.now.insert(key.clone(), value);
        inner.before.entry(key).or_insert(old);
    }

    /// Forgets the value under `key` and returns it.
    pub fn remove(&self, key: &str) -> Option<Value> {
        let mut inner = lock(&self.0);
        let old = inner.now.remove(key)?;
        inner.note(|| removal(key));
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
        inner.note(|| change(&key, value.clone(), exists));
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
    pub(super) fn begin(&self) {
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

fn change(key: &str, value: Value, exists: bool) -> PatchOperation {
    let path = PointerBuf::from_tokens([key]);
    if exists {
        PatchOperation::Replace(ReplaceOperation { path, value })
    } else {
        PatchOperation::Add(AddOperation { path, value })
    }
}

fn removal(key: &str) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens([key]) })
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
