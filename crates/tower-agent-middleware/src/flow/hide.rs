//! The words that the model reads in place of a result.

use serde_json::{Map, Value, json};

use super::book::Variable;
use super::declaration::ToolFlow;
use super::label::Label;
use super::pointer::pointer;

/// The results that the model does not read. It reads a name for them, which it can pass on.
///
/// Only results are hidden that would change the label of what the model has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hide {
    /// None. A tool can say otherwise: [`ToolFlow::hidden`].
    #[default]
    Nothing,
    /// All results. A tool can say otherwise: [`ToolFlow::shown`].
    Everything,
    /// Results with more than this many bytes of JSON.
    LargerThan(usize),
}

impl Hide {
    pub(super) fn hides(self, flow: &ToolFlow, value: &Value) -> bool {
        match (flow.hides, self) {
            (Some(hides), _) => hides,
            (None, Self::Nothing) => false,
            (None, Self::Everything) => true,
            (None, Self::LargerThan(bytes)) => value.to_string().len() > bytes,
        }
    }
}

/// Returns what the model reads of a hidden result: its name, size, origin and shape, the keys that
/// the program has named, and the parts that do not change the label of what the model has read.
pub(super) fn stub(
    name: &str,
    variable: &Variable,
    flow: &ToolFlow,
    context: &Label,
    is_error: bool,
) -> Value {
    let mut stub = json!({
        "$ref": name,
        "from": variable.tool,
        "is": kind_of(&variable.value),
        "bytes": size(&variable.value),
    });
    if is_error {
        stub["failed"] = true.into();
    }
    let keys = keys(&variable.value, flow);
    if !keys.is_empty() {
        stub["keys"] = keys.into();
    }
    let mut readable = Map::new();
    for (pattern, label) in &variable.labels {
        if label.is_within(context) {
            pattern.each(&variable.value, true, &mut |path, value| {
                // A more exact pointer may say otherwise, of this value or of a part of it.
                if is_readable(variable, path, value, context) {
                    readable.insert(pointer(path), value.clone());
                }
            });
        }
    }
    if !readable.is_empty() {
        stub["readable"] = Value::Object(readable);
    }
    stub
}

fn is_readable(variable: &Variable, path: &[String], value: &Value, context: &Label) -> bool {
    // The keys of an object are content as well.
    let is_plain = !matches!(value, Value::Object(_) | Value::Array(_));
    is_plain && variable.label_at(path).is_within(context)
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    }
}

/// Returns the kind of a value and the number of its elements.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(items) => format!("list of {}", items.len()),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Returns the keys of a value, or of the objects in a list, that the program has named.
fn keys(value: &Value, flow: &ToolFlow) -> Vec<String> {
    let object = match value {
        Value::Array(items) => items.first().and_then(Value::as_object),
        other => other.as_object(),
    };
    let keys = object.into_iter().flat_map(Map::keys);
    keys.filter(|key| flow.names_key(key)).cloned().collect()
}
