use serde_json::{Map, Value};

use super::response::ChatCompletion;
use crate::json::{append, append_lists};

/// The facts about a response that are no part of its message, such as citations.
#[derive(Debug, Default)]
pub(super) struct About(Map<String, Value>);

/// The facts of the whole response. Each chunk that has them repeats them.
const OF_RESPONSE: [&str; 2] = ["citations", "search_results"];

/// The facts of the message, which come in pieces.
const OF_MESSAGE: [&str; 2] = ["annotations", "executed_tools"];

impl About {
    /// Adds what a response or a chunk says, with its message or delta.
    pub(super) fn add(&mut self, response: &Value, message: &Value) {
        for name in OF_RESPONSE {
            if !response[name].is_null() {
                self.0.insert(name.into(), response[name].clone());
            }
        }
        for choice in response["choices"].as_array().into_iter().flatten() {
            if is_other(choice) {
                append(&mut self.0, "choices", choice.clone());
            } else if let Some(lists) = choice["logprobs"].as_object() {
                append_lists(&mut self.0, "logprobs", lists);
            }
        }
        for name in OF_MESSAGE {
            for fact in message[name].as_array().into_iter().flatten() {
                append(&mut self.0, name, fact.clone());
            }
        }
    }

    /// Returns the facts, unless there are none.
    pub(super) fn into_value(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Object(self.0))
    }
}

/// Returns whether a response or a chunk has more than its message. Most have nothing, and are not
/// read twice.
pub(super) fn has_more(response: &ChatCompletion<'_>) -> bool {
    response.has_citations
        || response.has_search_results
        || response.choices.has_others
        || response.choices.first.has_more()
}

/// Returns the message or the delta that has more than text, reasoning and calls. Perplexity
/// repeats the message so far beside each delta, and sends an empty delta beside a whole message.
pub(super) fn message(response: &Value) -> &Value {
    let choices = response["choices"].as_array();
    let mut choices = choices.into_iter().flatten();
    let choice = choices
        .find(|choice| !is_other(choice))
        .unwrap_or(&Value::Null);
    let has_more = |message: &Value| {
        OF_MESSAGE
            .iter()
            .chain(&["images", "audio"])
            .any(|name| !message[name].is_null())
    };
    if has_more(&choice["delta"]) {
        &choice["delta"]
    } else {
        &choice["message"]
    }
}

/// Returns whether it is not the choice that becomes the message.
fn is_other(choice: &Value) -> bool {
    choice["index"].as_u64().is_some_and(|index| index != 0)
}
