use serde_json::{Map, Value};

/// The usage as the server states it, if it is to be kept.
#[derive(Debug)]
pub(super) struct StatedUsage {
    /// The JSON pointers of where it stands, none if it is not kept.
    places: &'static [&'static str],
    fields: Map<String, Value>,
}

impl StatedUsage {
    pub(super) fn new(places: &'static [&'static str]) -> Self {
        Self {
            places,
            fields: Map::new(),
        }
    }

    /// Reads the usage of a response or an event. Later ones replace what they name.
    pub(super) fn read(&mut self, json: &[u8]) {
        if self.places.is_empty() {
            return;
        }
        let json: Value = serde_json::from_slice(json).unwrap_or_default();
        let mut places = self.places.iter();
        let usage = places.find_map(|place| json.pointer(place)?.as_object());
        for (name, value) in usage.into_iter().flatten() {
            if !value.is_null() {
                self.fields.insert(name.clone(), value.clone());
            }
        }
    }

    /// Returns the usage, if there is one.
    pub(super) fn into_json(self) -> Option<Value> {
        (!self.fields.is_empty()).then_some(Value::Object(self.fields))
    }
}
