use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tower_agent::{Checkpoint, Error, ErrorKind, Interrupt, Result};

/// An interrupted call, as its client keeps it: sealed.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    /// Unique, so that a server can tell that it was used before.
    pub(super) id: String,
    /// The time of expiry, in seconds since 1970.
    pub(super) expires: u64,
    pub(super) checkpoint: Checkpoint,
}

/// Returns the checkpoint of a tool that was interrupted, which has no conversation.
pub(super) fn paused(interrupts: &[Interrupt], private: Map<String, Value>) -> Result<Checkpoint> {
    // Through its JSON form: the core makes checkpoints only of agents' runs.
    let head = json!({
        "version": 1, "interrupts": interrupts, "turn": 0, "private_state": private,
    });
    serde_json::from_value(json!({ "head": head, "messages": [] })).map_err(|error| {
        Error::new(ErrorKind::Other, "the interrupted call cannot be saved").with_source(error)
    })
}
