//! The session's state as the client has it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::lock::lock;
use crate::{Event, Patch, PatchOperation};
use tower_agent::context::{State, StateDelta};

/// The state that was sent to the client.
#[derive(Debug, Default)]
pub(super) struct ToldState(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    keys: BTreeSet<String>,
    /// Every change is sent as a snapshot of the whole state.
    is_whole: bool,
}

impl ToldState {
    pub(super) fn snapshot(&self, state: Map<String, Value>) -> Event {
        lock(&self.0).keys = state.keys().cloned().collect();
        Event::state_snapshot(state)
    }

    /// Returns a delta, or the whole state once the client would reject the delta: it rejects keys
    /// that could reach the prototype of its objects, and the whole delta with them.
    pub(super) fn delta(&self, delta: StateDelta, state: &State) -> Event {
        let mut told = lock(&self.0);
        let mut keys = delta.set.keys().chain(&delta.removed);
        told.is_whole |=
            keys.any(|key| matches!(&**key, "__proto__" | "constructor" | "prototype"));
        match told.is_whole {
            true => Event::state_snapshot(state.snapshot()),
            false => Event::state_delta(told.patch(delta)),
        }
    }
}

impl Told {
    fn patch(&mut self, delta: StateDelta) -> Patch {
        let removed = delta.removed.into_iter().filter(|key| self.keys.remove(key)).map(|key| {
            PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens([key]) })
        });
        let mut patch: Vec<_> = removed.collect();
        patch.extend(delta.set.into_iter().map(|(key, value)| {
            let path = PointerBuf::from_tokens([&key]);
            match self.keys.insert(key) {
                true => PatchOperation::Add(AddOperation { path, value }),
                false => PatchOperation::Replace(ReplaceOperation { path, value }),
            }
        }));
        Patch(patch)
    }
}
