use serde_json::{Map, Value};

use crate::protocol::GUARANTEED_FORMATS;

/// The keywords that strict mode supports.
const KEYWORDS: [&str; 20] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "type",
];

/// Returns whether the schema is one that strict mode accepts as it is: every object is closed and
/// requires all its properties, and no keyword is unsupported.
pub(super) fn is_strict(schema: &Value) -> bool {
    // `true` and `false` are schemas, but not for strict mode.
    let Value::Object(schema) = schema else {
        return false;
    };
    schema
        .iter()
        .all(|(keyword, value)| match keyword.as_str() {
            "$defs" | "properties" => value
                .as_object()
                .is_some_and(|schemas| schemas.values().all(is_strict)),
            "items" => is_strict(value),
            "anyOf" => value
                .as_array()
                .is_some_and(|schemas| schemas.iter().all(is_strict)),
            "format" => GUARANTEED_FORMATS.iter().any(|format| value == format),
            keyword => KEYWORDS.contains(&keyword),
        })
        && is_typed(schema)
        && (!is_object(schema) || is_closed(schema))
}

fn is_typed(schema: &Map<String, Value>) -> bool {
    ["$ref", "anyOf", "const", "enum", "type"]
        .iter()
        .any(|keyword| schema.contains_key(*keyword))
}

fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|one| one == "object"),
        Some(one) => one == "object",
        None => schema.contains_key("properties"),
    }
}

fn is_closed(schema: &Map<String, Value>) -> bool {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return false;
    };
    // Without a list nothing is required, which is enough for an object without properties.
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && properties
            .keys()
            .all(|name| required.iter().any(|one| one == name))
}
