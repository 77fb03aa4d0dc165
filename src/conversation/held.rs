//! Messages that a tool has brought beside its result, while calls of its turn are open.

use serde_json::json;

use crate::message::{Message, Role};

const KEY: &str = "tower_agent";

impl Message {
    /// Returns the message as one of a tool, since any other would end the turn and close the calls
    /// that are still open. `call` is the one that has brought it.
    pub(crate) fn held(mut self, call: &str) -> Self {
        let held = json!({ "call": call, "role": self.role() });
        self.provider_mut().set(KEY, held);
        self.set_role(Role::Tool);
        self
    }

    /// Returns the id of the call that has brought the message, if it is held.
    pub(crate) fn held_by(&self) -> Option<&str> {
        self.provider().get(KEY)?.get("call")?.as_str()
    }

    /// Returns the message as the call has brought it.
    pub(crate) fn released(&self) -> Self {
        let mut message = self.clone();
        if self.held_by().is_some()
            && let Some(mut held) = message.provider_mut().remove(KEY)
            && let Ok(role) = serde_json::from_value(held["role"].take())
        {
            message.set_role(role);
        }
        message
    }
}
