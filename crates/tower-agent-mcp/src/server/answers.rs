//! Answers of a client's user as resolutions.

use rmcp::model::{ElicitResult, ElicitationAction};
use serde_json::Value;
use tower_agent::{Interrupt, Resolution};

use super::form;

pub(super) fn resolution(interrupt: &Interrupt, answer: ElicitResult) -> Resolution {
    if answer.action != ElicitationAction::Accept {
        return Resolution::cancelled(&interrupt.id);
    }
    let content = answer.content.unwrap_or_default();
    let payload = match form::url(interrupt) {
        Some(_) => Value::Bool(true),
        None if form::is_simple(interrupt) => content,
        None => match content.get(form::ANSWER).and_then(Value::as_str) {
            Some(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            None => content,
        },
    };
    Resolution::resolved(&interrupt.id, payload)
}
