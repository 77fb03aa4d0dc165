//! Ids of chat channels.
//!
//! AgentDojo's chat knows its channels by their names alone, which anybody can choose. A real one
//! has an id for each, so where fields have labels of their own the program's tools have ids too,
//! and turn them into names.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// The channels that were listed in a run. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Channels(Arc<Mutex<Vec<String>>>);

impl Channels {
    fn names(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the id of the channel with this name.
    pub(crate) fn id(&self, name: &str) -> Option<String> {
        let index = self.names().iter().position(|channel| channel == name)?;
        Some(format!("C{index}"))
    }

    /// Adds an id to each name in a list of channels.
    pub(crate) fn list(&self, names: &Value) -> Value {
        let names = names.as_array().into_iter().flatten();
        let names: Vec<_> = names
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names.clone();
        let channels = names
            .iter()
            .enumerate()
            .map(|(index, name)| json!({ "id": format!("C{index}"), "name": name }));
        channels.collect()
    }

    /// Puts the name of the channel in the place of its id.
    pub(crate) fn resolve(&self, arguments: &mut Value) {
        let id = arguments.get("channel").and_then(Value::as_str);
        let index = id.and_then(|id| id.strip_prefix('C')?.parse::<usize>().ok());
        if let Some(name) = index.and_then(|index| self.names().get(index).cloned()) {
            arguments["channel"] = name.into();
        }
    }
}
