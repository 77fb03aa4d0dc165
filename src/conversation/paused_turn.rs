//! Messages in which the provider paused a turn of its own tools.

use serde_json::json;

use crate::message::Message;

/// The key of what is kept of them: a run that is resumed from its messages goes on as well.
const KEY: &str = "tower_agent";

impl Message {
    /// Marks the message as one that the model has not finished.
    pub(crate) fn pause(&mut self) {
        self.provider_mut().set(KEY, json!({ "is_paused": true }));
    }

    /// Returns whether the model has not finished the message.
    pub(crate) fn is_paused(&self) -> bool {
        let own = self.provider().get(KEY);
        own.is_some_and(|own| own["is_paused"] == true)
    }
}
