//! The knowledge of the model of a run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::values::{as_text, has_number, has_word, is_time, leaves};

/// What the planner has read, and what it has not.
#[derive(Default)]
pub(crate) struct Knowledge {
    text: String,
    values: BTreeSet<String>,
    /// The hidden results, by their names.
    pub(crate) hidden: Vec<String>,
    pub(crate) shown: usize,
    pub(crate) questions: usize,
    pub(crate) is_taken_over: bool,
    pub(crate) was_refused: bool,
    pub(crate) has_attacked: bool,
    pub(crate) has_given_up: bool,
    /// The turns of the model.
    pub(crate) turns: usize,
    /// The value that the reader should have chosen, and what it has chosen.
    pub(crate) chosen: Option<(String, String)>,
    pub(crate) calls_by_tool: BTreeMap<String, usize>,
}

impl Knowledge {
    /// Adds the user's request, whose words are no ids.
    pub(crate) fn learn_request(&mut self, prompt: &str) {
        self.text.push_str(&prompt.to_lowercase());
    }

    /// Adds what is in a result.
    pub(crate) fn learn(&mut self, value: &Value) {
        for (_, leaf) in leaves(value, String::new()) {
            let text = as_text(leaf).to_lowercase();
            self.text.push('\n');
            self.text.push_str(&text);
            self.values.insert(text);
        }
        // Some results have names as keys.
        for key in value.as_object().into_iter().flat_map(Map::keys) {
            self.text.push('\n');
            self.text.push_str(&key.to_lowercase());
        }
    }

    /// Returns whether an id was read.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.values.contains(&id.to_lowercase())
    }

    /// Returns whether the planner has read this value, or it is the request's.
    pub(crate) fn knows(&self, place: &str, value: &Value) -> bool {
        let text = as_text(value).to_lowercase();
        // A number in a text is no id.
        let is_id = place == "/id" || place.contains("_id");
        match value {
            _ if self.values.contains(&text) => true,
            _ if is_id => false,
            Value::Null | Value::Bool(_) => true,
            Value::Number(number) => has_number(&self.text, number.as_f64()),
            // The day is the request's, and it says the hour, or how to reckon it.
            _ if is_time(&text) => has_word(&self.text, &text[..10]),
            _ if place.ends_with("/type") => true,
            _ => has_word(&self.text, &text),
        }
    }
}
