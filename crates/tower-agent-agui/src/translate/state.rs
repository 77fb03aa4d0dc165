//! The session's state as the client has it.

use std::sync::Mutex;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::lock::lock;
use crate::wire::{Event, Patch, PatchOperation};
use tower_agent::context::StateDelta;

/// The state that was sent to the client.
#[derive(Debug, Default)]
pub(super) struct ToldState(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    state: Map<String, Value>,
    /// Every change is sent as a snapshot of the whole state.
    is_whole: bool,
}

impl ToldState {
    pub(super) fn snapshot(&self, state: Map<String, Value>) -> Event {
        lock(&self.0).state.clone_from(&state);
        Event::state_snapshot(state)
    }

    /// Returns a delta, or the whole state once the client would reject the delta: it rejects keys
    /// that could reach the prototype of its objects, and the whole delta with them.
    pub(super) fn delta(&self, delta: StateDelta) -> Event {
        let mut told = lock(&self.0);
        let mut keys = delta.set.keys().chain(&delta.removed);
        told.is_whole |=
            keys.any(|key| matches!(&**key, "__proto__" | "constructor" | "prototype"));
        let patch = (!told.is_whole).then(|| patch(&delta, &told.state));
        delta.apply(&mut told.state);
        match patch {
            Some(patch) => Event::state_delta(patch),
            None => Event::state_snapshot(told.state.clone()),
        }
    }
}

/// Returns the delta as a patch of the state that was sent before.
fn patch(delta: &StateDelta, told: &Map<String, Value>) -> Patch {
    let path = |key: &String| PointerBuf::from_tokens([key]);
    let removed = delta.removed.iter().filter(|key| told.contains_key(*key));
    let removed = removed.map(|key| PatchOperation::Remove(RemoveOperation { path: path(key) }));
    let set = delta.set.iter().map(|(key, value)| {
        let (path, value) = (path(key), value.clone());
        match told.contains_key(key) {
            true => PatchOperation::Replace(ReplaceOperation { path, value }),
            false => PatchOperation::Add(AddOperation { path, value }),
        }
    });
    Patch(removed.chain(set).collect())
}
