use serde_json::{Map, Value};

/// Appends to the list of this name.
pub(crate) fn append(fields: &mut Map<String, Value>, name: &str, value: Value) {
    let list = fields
        .entry(name)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = list {
        list.push(value);
    }
}

/// Appends the lists of an object to those of the object of this name.
pub(crate) fn append_lists(
    fields: &mut Map<String, Value>,
    name: &str,
    lists: &Map<String, Value>,
) {
    let all = fields
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(all) = all else { return };
    for (name, list) in lists {
        for value in list.as_array().into_iter().flatten() {
            append(all, name, value.clone());
        }
    }
}
