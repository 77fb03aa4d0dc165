//! A session's state and its changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chance;
use crate::lock::lock;

/// A session's state: a JSON object that is passed with the request and returned with the response.
///
/// Clones share one state. It is shared by everything in a run, sub-agents included.
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
pub struct State {
    inner: Arc<SharedState>,
    /// Collects the changes that are made through this handle.
    log: Option<Arc<StateLog>>,
}

/// A log of the changes made through some handles of a state.
#[derive(Debug, Default)]
struct StateLog {
    changes: Mutex<BTreeMap<String, (u64, Option<Value>)>>,
    /// The entries that were read, each value once; `None` if nobody asks.
    read: Option<Mutex<Vec<(String, Value)>>>,
    /// The log that the changes are part of as well.
    outer: Option<Arc<StateLog>>,
}

impl StateLog {
    fn note(&self, key: &str, now: Option<&Value>, number: u64) {
        for log in self.around() {
            let mut changes = lock(&log.changes);
            // Replayed changes arrive in any order, and the greatest number is the latest change.
            if changes.get(key).is_none_or(|(last, _)| *last <= number) {
                changes.insert(key.to_owned(), (number, now.cloned()));
            }
        }
    }

    /// Notes that an entry was read whose latest change, if it was logged, has this number.
    fn note_read(&self, key: &str, value: &Value, latest: Option<u64>) {
        for log in self.around() {
            if let Some(read) = &log.read {
                let own = lock(&log.changes).get(key).map(|(number, _)| *number);
                // What a call has written itself, it knows.
                let mut read = lock(read);
                let is_known =
                    |(known, earlier): &(String, Value)| known == key && earlier == value;
                if (own.is_none() || own != latest) && !read.iter().any(is_known) {
                    read.push((key.to_owned(), value.clone()));
                }
            }
        }
    }

    fn around(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |log| log.outer.as_deref())
    }

    fn changes(&self) -> LoggedChanges {
        let mut logged = LoggedChanges::default();
        for (key, (number, now)) in &*lock(&self.changes) {
            logged.order.insert(key.clone(), *number);
            logged.delta.note(key.clone(), true, now.clone());
        }
        logged
    }
}

/// The logged changes of one call. They are numbered within a run: if concurrent calls change one
/// key, the later change stands, in whichever order the calls are applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoggedChanges {
    #[serde(flatten)]
    delta: StateDelta,
    order: BTreeMap<String, u64>,
}

impl LoggedChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.delta.is_empty() && self.order.is_empty()
    }
}

/// The beginning of the keys of data about tool calls, which is removed with the call.
pub(crate) const CALLS: &str = "calls/";

/// The key of the guards that a conversation does not go on without, in the private state.
pub(crate) const GUARDS: &str = "tower_agent.guards";

/// Returns whether a key is about this call or one in it, and not one whose id begins alike.
fn is_about(key: &str, call: &str) -> bool {
    let rest = key.strip_prefix(call);
    rest.is_some_and(|rest| rest.starts_with([' ', '/']))
}

pub(crate) fn key_of_call(path: &str, name: &str) -> String {
    [CALLS, path, " ", name].concat()
}

#[derive(Debug, Default)]
struct SharedState {
    data: Mutex<StateData>,
    /// The number of entries about tool calls. Outside the lock, since every tool call asks twice.
    about_calls: AtomicUsize,
}

impl SharedState {
    fn insert(&self, data: &mut StateData, key: String, value: Value) -> Option<Value> {
        let is_about_call = key.starts_with(CALLS);
        let old = data.now.insert(key, value);
        if is_about_call && old.is_none() {
            self.about_calls.fetch_add(1, Ordering::Release);
        }
        old
    }

    fn remove(&self, data: &mut StateData, key: &str) -> Option<Value> {
        let old = data.now.remove(key)?;
        if key.starts_with(CALLS) {
            self.about_calls.fetch_sub(1, Ordering::Release);
        }
        Some(old)
    }
}

#[derive(Debug, Default)]
struct StateData {
    now: Map<String, Value>,
    /// The keys changed since the run started, with their original values.
    before: BTreeMap<String, Option<Value>>,
    /// The greatest number of a logged change.
    last: u64,
    /// The keys whose latest change was logged, with its number.
    logged: BTreeMap<String, u64>,
    /// The changes that streams have not emitted.
    watchers: Vec<Weak<Untold>>,
}

/// The changes of a state that a stream has not emitted.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    is_some: AtomicBool,
    /// By their keys: whether the stream's last event about the state had it, and what it is now.
    changes: Mutex<BTreeMap<String, (bool, Option<Value>)>>,
}

impl Untold {
    fn note(&self, key: &str, was_there: bool, now: Option<Value>) {
        let mut changes = lock(&self.changes);
        match changes.get_mut(key) {
            // `was_there` stays: it is about the last event, not about the last change.
            Some((_, latest)) => *latest = now,
            None => {
                changes.insert(key.to_owned(), (was_there, now));
            }
        }
        self.is_some.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<StateDelta> {
        // Usually there is none, and this is checked before every event.
        if self.is_some.load(Ordering::Acquire) {
            self.take_changes()
        } else {
            None
        }
    }

    fn take_changes(&self) -> Option<StateDelta> {
        let mut changes = lock(&self.changes);
        // Under the lock: a change noted after this sets the flag again.
        self.is_some.store(false, Ordering::Release);
        let mut delta = StateDelta::default();
        for (key, (was_there, now)) in std::mem::take(&mut *changes) {
            delta.note(key, was_there, now);
        }
        (!delta.is_empty()).then_some(delta)
    }
}

impl StateData {
    /// Records a change of a key for the streams.
    fn note(&mut self, key: &str, was_there: bool, now: impl Fn() -> Option<Value>) {
        // A stream that was dropped without `unwatch` is removed here.
        self.watchers.retain(|watcher| match watcher.upgrade() {
            Some(untold) => {
                untold.note(key, was_there, now());
                true
            }
            None => false,
        });
    }
}

/// The difference between two states, by top-level key: in a response, from the start of the run;
/// in a stream, from the last event about the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateDelta {
    /// Keys with a new value.
    #[serde(serialize_with = "crate::depth::serialize")]
    pub set: Map<String, Value>,
    /// Removed keys.
    pub removed: Vec<String>,
}

impl StateDelta {
    /// Returns whether there is no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }

    fn note(&mut self, key: String, was_there: bool, now: Option<Value>) {
        if let Some(now) = now {
            self.set.insert(key, now);
        } else if was_there {
            // Otherwise it was set and removed in between: nobody saw the key.
            self.removed.push(key);
        }
    }

    /// Applies the changes to a copy of the state.
    pub fn apply(self, state: &mut Map<String, Value>) {
        for key in &self.removed {
            state.remove(key);
        }
        state.extend(self.set);
    }
}

impl State {
    /// Returns the value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        self.read(key, |value| value.cloned())
    }

    /// Stores `value` under `key`.
    pub fn set(&self, key: impl Into<String>, value: impl Into<Value>) {
        // Converted before the lock is taken: the conversions are foreign code.
        let key = key.into();
        let value = value.into();
        self.put(&mut lock(&self.inner.data), key, value, None);
    }

    fn put(&self, inner: &mut StateData, key: String, value: Value, number: Option<u64>) {
        let exists = inner.now.contains_key(&key);
        inner.note(&key, exists, || Some(value.clone()));
        self.log(inner, &key, Some(&value), number);
        let old = self.inner.insert(inner, key.clone(), value);
        // Only the first change of a key keeps the value that the run started with.
        inner.before.entry(key).or_insert(old);
    }

    /// Removes the value under `key` and returns it.
    pub fn remove(&self, key: &str) -> Option<Value> {
        let inner = &mut *lock(&self.inner.data);
        self.note_read(inner, key);
        self.take(inner, key, None)
    }

    #[inline]
    fn note_read(&self, inner: &StateData, key: &str) {
        if let (Some(log), Some(value)) = (&self.log, inner.now.get(key)) {
            log.note_read(key, value, inner.logged.get(key).copied());
        }
    }

    fn take(&self, inner: &mut StateData, key: &str, number: Option<u64>) -> Option<Value> {
        let old = self.inner.remove(inner, key);
        // A removal from another process is logged even if the key is absent here, so that an
        // earlier `set` which is applied later does not bring the key back.
        if old.is_some() || number.is_some() {
            self.log(inner, key, None, number);
        }
        let old = old?;
        inner.note(key, true, || None);
        inner
            .before
            .entry(key.to_owned())
            .or_insert_with(|| Some(old.clone()));
        Some(old)
    }

    /// Changes the value under `key` in place, which starts as `null`, and returns the result of
    /// `change`. The change is atomic.
    ///
    /// `change` must not access the state itself.
    pub fn update<T>(&self, key: impl AsRef<str>, update: impl FnOnce(&mut Value) -> T) -> T {
        let key = key.as_ref();
        let inner = &mut *lock(&self.inner.data);
        self.note_read(inner, key);
        if !inner.before.contains_key(key) {
            let old = inner.now.get(key).cloned();
            inner.before.insert(key.to_owned(), old);
        }
        // Taken out, not cloned: if `update` panics, the value is `null` instead of half changed.
        let taken = inner.now.get_mut(key).map(std::mem::take);
        let exists = taken.is_some();
        let mut value = taken.unwrap_or_default();
        let updated = update(&mut value);
        inner.note(key, exists, || Some(value.clone()));
        self.log(inner, key, Some(&value), None);
        match inner.now.get_mut(key) {
            Some(known) => *known = value,
            None => drop(self.inner.insert(inner, key.to_owned(), value)),
        }
        updated
    }

    /// Returns a handle whose changes are logged, as part of those of this handle if it has a log.
    pub(crate) fn logged(&self) -> Self {
        self.with_log(None)
    }

    /// Returns a handle that notes what is read and changed through it, for this one as well.
    pub(crate) fn traced(&self) -> Self {
        self.with_log(Some(Mutex::default()))
    }

    fn with_log(&self, read: Option<Mutex<Vec<(String, Value)>>>) -> Self {
        let log = StateLog {
            read,
            outer: self.log.clone(),
            ..StateLog::default()
        };
        Self {
            inner: self.inner.clone(),
            log: Some(Arc::new(log)),
        }
    }

    /// Returns what was read through this [traced](Self::traced) handle and not written before.
    pub(crate) fn entries_read(&self) -> Vec<(String, Value)> {
        let read = self.log.as_ref().and_then(|log| log.read.as_ref());
        read.map(|read| lock(read).clone()).unwrap_or_default()
    }

    pub(crate) fn keys_written(&self) -> Vec<String> {
        let log = self.log.as_ref();
        log.map(|log| lock(&log.changes).keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns whether nobody else has written or removed this key since.
    pub(crate) fn has_written_last(&self, key: &str) -> bool {
        let Some(log) = &self.log else { return false };
        let inner = lock(&self.inner.data);
        let own = lock(&log.changes).get(key).map(|(number, _)| *number);
        own.is_some() && own == inner.logged.get(key).copied()
    }

    /// Returns a digest of a value: the same in every process, and another one for another value.
    /// For code that keeps what it knows about an entry, to see whether it still is about it.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::State;
    ///
    /// let known = State::digest(&json!({ "a": 1, "b": 2 }));
    /// assert_eq!(State::digest(&json!({ "b": 2, "a": 1 })), known);
    /// assert_ne!(State::digest(&json!({ "a": 1, "b": 3 })), known);
    /// ```
    #[must_use]
    pub fn digest(value: &Value) -> String {
        let mut value = value.clone();
        // A store may keep objects in another order.
        value.sort_all_objects();
        chance::name(&["state", &value.to_string()]).to_string()
    }

    pub(crate) fn logged_changes(&self) -> LoggedChanges {
        let log = self.log.as_ref();
        log.map(|log| log.changes()).unwrap_or_default()
    }

    /// Applies the changes of a replayed call, but to keys that a later call has changed.
    pub(crate) fn apply(&self, changes: &LoggedChanges) {
        let inner = &mut *lock(&self.inner.data);
        let removed = changes.delta.removed.iter().map(|key| (key, None));
        let set = changes
            .delta
            .set
            .iter()
            .map(|(key, value)| (key, Some(value)));
        for (key, now) in removed.chain(set) {
            let number = changes.order.get(key).copied();
            let is_over = inner
                .logged
                .get(key)
                .is_some_and(|last| Some(*last) > number);
            match (now, number, &self.log) {
                // A later call has changed the key: the state stays, but the log of the call around
                // this one still needs the change, since it may be replayed alone.
                (_, Some(number), log) if is_over => {
                    if let Some(log) = log {
                        log.note(key, now, number);
                    }
                }
                (Some(value), ..) => self.put(inner, key.clone(), value.clone(), number),
                (None, ..) => {
                    self.take(inner, key, number);
                }
            }
        }
    }

    /// Returns what `read` returns for the value under `key`, without a copy of the value. The
    /// state is locked meanwhile: `read` must not access it.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::State;
    ///
    /// let state = State::default();
    /// state.set("pages", json!(["a", "b"]));
    /// let pages = state.read("pages", |pages| pages?.as_array().map(Vec::len));
    /// assert_eq!(pages, Some(2));
    /// ```
    pub fn read<T>(&self, key: &str, read: impl FnOnce(Option<&Value>) -> T) -> T {
        let inner = lock(&self.inner.data);
        self.note_read(&inner, key);
        read(inner.now.get(key))
    }

    /// Logs a change, in order under the lock. One of another process has its `number`.
    fn log(&self, inner: &mut StateData, key: &str, now: Option<&Value>, number: Option<u64>) {
        if self.log.is_none() && number.is_none() {
            // An unlogged change, such as one by the caller, has no number: logged changes that
            // follow are later than it, whatever number they have.
            inner.logged.remove(key);
            return;
        }
        let number = number.unwrap_or(inner.last + 1);
        inner.last = inner.last.max(number);
        inner.logged.insert(key.to_owned(), number);
        if let Some(log) = &self.log {
            log.note(key, now, number);
        }
    }

    /// Returns the value that was under `key` when the run started.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::State;
    ///
    /// let state = State::from_iter([("visits".to_owned(), json!(1))]);
    /// state.set("visits", 2);
    /// assert_eq!(state.original("visits"), Some(json!(1)));
    /// ```
    #[must_use]
    pub fn original(&self, key: &str) -> Option<Value> {
        let inner = lock(&self.inner.data);
        let now = || inner.now.get(key).cloned();
        inner.before.get(key).cloned().unwrap_or_else(now)
    }

    /// Returns whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        lock(&self.inner.data).now.is_empty()
    }

    pub(crate) fn has_data_about_calls(&self) -> bool {
        self.inner.about_calls.load(Ordering::Acquire) > 0
    }

    /// Returns whether there is data about the tool call with this path, or about calls made in it.
    #[cold]
    pub(crate) fn has_data_about(&self, path: &str) -> bool {
        let path = format!("{CALLS}{path}");
        let inner = lock(&self.inner.data);
        inner.now.keys().any(|key| is_about(key, &path))
    }

    /// Removes the data about the tool call with this path and about calls made in it.
    #[cold]
    pub(crate) fn forget_call(&self, path: &str) {
        let path = format!("{CALLS}{path}");
        self.remove_all(|key| is_about(key, &path));
    }

    pub(crate) fn forget_calls(&self) {
        self.remove_all(|key| key.starts_with(CALLS));
    }

    pub(crate) fn remove_all(&self, is_gone: impl Fn(&str) -> bool) {
        let inner = &mut *lock(&self.inner.data);
        let keys = inner.now.keys().filter(|key| is_gone(key));
        for key in keys.cloned().collect::<Vec<_>>() {
            self.take(inner, &key, None);
        }
    }

    /// Returns a copy of the whole state.
    #[must_use]
    pub fn snapshot(&self) -> Map<String, Value> {
        let inner = lock(&self.inner.data);
        for key in inner.now.keys() {
            self.note_read(&inner, key);
        }
        inner.now.clone()
    }

    /// Starts a run: from here on changes are recorded.
    pub(crate) fn begin(&self) {
        let inner = &mut *lock(&self.inner.data);
        inner.before.clear();
        inner.logged.clear();
        inner.last = 0;
    }

    /// Returns the whole state, after which changes are recorded for a stream.
    pub(crate) fn watch(&self, untold: &Arc<Untold>) -> Map<String, Value> {
        let mut inner = lock(&self.inner.data);
        inner.watchers.push(Arc::downgrade(untold));
        inner.now.clone()
    }

    pub(crate) fn unwatch(&self, untold: &Arc<Untold>) {
        let untold = Arc::as_ptr(untold);
        lock(&self.inner.data)
            .watchers
            .retain(|watcher| watcher.as_ptr() != untold);
    }

    /// Returns the changes since the run started.
    #[must_use]
    pub fn delta(&self) -> StateDelta {
        let inner = lock(&self.inner.data);
        let mut delta = StateDelta::default();
        for (key, old) in &inner.before {
            let now = inner.now.get(key);
            if now != old.as_ref() {
                delta.note(key.clone(), old.is_some(), now.cloned());
            }
        }
        delta
    }
}

impl From<Map<String, Value>> for State {
    fn from(now: Map<String, Value>) -> Self {
        let about_calls = now.keys().filter(|key| key.starts_with(CALLS)).count();
        let data = StateData {
            now,
            ..StateData::default()
        };
        let shared = SharedState {
            data: Mutex::new(data),
            about_calls: about_calls.into(),
        };
        Self {
            inner: Arc::new(shared),
            log: None,
        }
    }
}

impl FromIterator<(String, Value)> for State {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self::from(entries.into_iter().collect::<Map<_, _>>())
    }
}
