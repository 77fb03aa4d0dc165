//! Answers of a client's user as resolutions.

use rmcp::model::{ElicitResult, ElicitationAction};
use serde_json::Value;
use tower_agent::{Interrupt, Resolution};

use super::form;

/// Converts the answer to a question of [`form::question`] to the resolution of its interrupt.
pub(super) fn resolution(interrupt: &Interrupt, answer: ElicitResult) -> Resolution {
    // Declining and cancelling are the same for a run.
    if answer.action != ElicitationAction::Accept {
        return Resolution::cancelled(&interrupt.id);
    }
    let content = answer.content.unwrap_or_default();
    let payload = match form::url(interrupt) {
        // A visit of a page has no content, and a resolution needs a value.
        Some(_) => Value::Bool(true),
        None if form::is_simple(interrupt) => content,
        None => match content.get(form::ANSWER).and_then(Value::as_str) {
            // Text that is not JSON is taken as a string: a person seldom types the quotes.
            Some(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            None => content,
        },
    };
    Resolution::resolved(&interrupt.id, payload)
}
