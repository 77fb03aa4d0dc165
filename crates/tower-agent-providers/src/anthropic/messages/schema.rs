use serde_json::{Map, Value};

use crate::protocol::{Call, GUARANTEED_FORMATS, schema_of, takes_answer_tool};
use tower_agent::model::ReasoningEffort;

/// Keywords that are rejected where a schema is guaranteed.
const REJECTED: [&str; 12] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "patternProperties",
    "uniqueItems",
];

/// Returns why the schema of an answer is not accepted.
pub(crate) fn describes(schema: &Value) -> Option<&'static str> {
    is_recursive(schema, schema, &mut Vec::new())
        .then_some("the provider takes no schema that refers to itself")
}

/// Returns why a tool gives the answer of a call, if it does. Where the model reasons, no call can
/// be forced.
pub(super) fn answer_tool(call: &Call<'_>) -> Option<&'static str> {
    let settings = call.request().settings();
    let reasons = match settings.reasoning_effort {
        None | Some(ReasoningEffort::None) => settings.extra.contains_key("thinking"),
        Some(_) => true,
    };
    let reason = schema_of(call).and_then(describes);
    reason.filter(|_| !reasons && takes_answer_tool(call))
}

/// Returns whether a part of a schema refers to one of the parts that it is in, or to the whole.
fn is_recursive<'a>(whole: &'a Value, part: &'a Value, within: &mut Vec<&'a str>) -> bool {
    let parts = match part {
        Value::Object(fields) => fields,
        Value::Array(all) => return all.iter().any(|part| is_recursive(whole, part, within)),
        _ => return false,
    };
    parts.iter().any(|(name, value)| match (&**name, value) {
        // They count where they are referred to.
        ("$defs" | "definitions", _) => false,
        ("$ref", Value::String(reference)) => {
            let reference = reference.trim_start_matches('#');
            if reference.is_empty() || within.contains(&reference) {
                return true;
            }
            let Some(target) = whole.pointer(reference) else {
                return false;
            };
            within.push(reference);
            let is_recursive = is_recursive(whole, target, within);
            within.pop();
            is_recursive
        }
        (_, value) => is_recursive(whole, value, within),
    })
}

/// Returns a schema that can be guaranteed. What is rejected is moved into the description, where
/// the model reads it.
pub(crate) fn guaranteed(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    let mut accepted = Map::new();
    let mut moved = Vec::new();
    for (name, value) in fields {
        let is_moved = match &**name {
            "format" => value != "uri" && !GUARANTEED_FORMATS.iter().any(|known| value == known),
            // Only 0 and 1 are accepted.
            "minItems" => value.as_u64().is_none_or(|count| count > 1),
            other => REJECTED.contains(&other),
        };
        if is_moved {
            moved.push(format!("{name}: {value}"));
            continue;
        }
        let (name, value) = match (&**name, value) {
            ("properties" | "$defs" | "definitions", Value::Object(all)) => {
                let all = all
                    .iter()
                    .map(|(name, value)| (name.clone(), guaranteed(value)));
                (&**name, Value::Object(all.collect()))
            }
            // `oneOf` is rejected; `anyOf` says nearly the same.
            ("oneOf", Value::Array(all)) if !fields.contains_key("anyOf") => {
                ("anyOf", all.iter().map(guaranteed).collect())
            }
            ("anyOf" | "allOf" | "oneOf", Value::Array(all)) => {
                (&**name, all.iter().map(guaranteed).collect())
            }
            ("items" | "additionalProperties", value) => (&**name, guaranteed(value)),
            (name, value) => (name, value.clone()),
        };
        accepted.insert(name.to_owned(), value);
    }
    if !moved.is_empty() {
        let moved = format!("{{{}}}", moved.join(", "));
        let description = match accepted.get("description").and_then(Value::as_str) {
            Some(text) => format!("{text}\n\n{moved}"),
            None => moved,
        };
        accepted.insert("description".into(), description.into());
    }
    Value::Object(accepted)
}
