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
pub(super) struct SentState(Mutex<ClientState>);

#[derive(Debug, Default)]
struct ClientState {
    state: Map<String, Value>,
    /// Every change is sent as a snapshot of the whole state.
    is_whole: bool,
}

impl SentState {
    /// Returns the whole state as an event.
    pub(super) fn snapshot(&self, state: Map<String, Value>) -> Event {
        lock(&self.0).state.clone_from(&state);
        Event::state_snapshot(state)
    }

    /// Returns a delta, or the whole state once the client would reject the delta: it rejects keys
    /// that could reach the prototype of its objects, and the whole delta with them.
    pub(super) fn delta(&self, delta: StateDelta) -> Event {
        let mut client = lock(&self.0);
        let mut keys = delta.set.keys().chain(&delta.removed);
        // From then on for good: a later delta would change a state that the client may not have.
        client.is_whole |=
            keys.any(|key| matches!(&**key, "__proto__" | "constructor" | "prototype"));
        if client.is_whole {
            delta.apply(&mut client.state);
            return Event::state_snapshot(client.state.clone());
        }
        // The patch depends on the state before the delta.
        let patch = patch(&delta, &client.state);
        delta.apply(&mut client.state);
        Event::state_delta(patch)
    }
}

/// Returns the delta as a patch of the state that was sent before.
fn patch(delta: &StateDelta, state: &Map<String, Value>) -> Patch {
    let mut operations = Vec::new();
    for key in &delta.removed {
        // A client rejects the whole patch if it removes a key that is not there.
        if state.contains_key(key) {
            let path = PointerBuf::from_tokens([key]);
            operations.push(PatchOperation::Remove(RemoveOperation { path }));
        }
    }
    for (key, value) in &delta.set {
        let path = PointerBuf::from_tokens([key]);
        let value = value.clone();
        operations.push(if state.contains_key(key) {
            PatchOperation::Replace(ReplaceOperation { path, value })
        } else {
            PatchOperation::Add(AddOperation { path, value })
        });
    }
    Patch(operations)
}
