use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// Returns a schema in the words of OpenAPI 3.0, which a server takes that reads nothing else of
/// JSON Schema: a type is one word, whether it may be null stands beside it, a list says what its
/// items are, and nothing refers to another place.
pub(super) fn schema(schema: &Value) -> Value {
    written(schema, schema, &mut Vec::new())
}

/// `within` are the references that the schema is in.
fn written<'a>(schema: &'a Value, whole: &'a Value, within: &mut Vec<&'a str>) -> Value {
    let fields = match schema {
        Value::Object(fields) => fields,
        // Anything may stand there.
        _ => return json!({}),
    };
    if let Some(Value::String(reference)) = fields.get("$ref") {
        return referred(fields, reference, whole, within);
    }
    let mut out = Map::new();
    let mut is_nullable = false;
    for (name, value) in fields {
        match (&**name, value) {
            // What they describe is written where it is referred to.
            ("$schema" | "$defs" | "definitions" | "$id", _) => {}
            ("type", Value::Array(types)) => {
                is_nullable |= types.iter().any(|kind| kind == "null");
                let others: Vec<_> = types.iter().filter(|kind| *kind != "null").collect();
                match &others[..] {
                    [] => {}
                    [kind] => drop(out.insert("type".into(), (*kind).clone())),
                    kinds => {
                        let kinds = kinds.iter().map(|kind| of_type(kind));
                        out.insert("anyOf".into(), kinds.collect());
                    }
                }
            }
            ("type", kind) if kind == "null" => is_nullable = true,
            ("anyOf" | "oneOf", Value::Array(all)) => {
                let is_null = |one: &&Value| one["type"] == "null";
                is_nullable |= all.iter().any(|one| is_null(&one));
                let others = all.iter().filter(|one| !is_null(one));
                let mut others: Vec<_> = others.map(|one| written(one, whole, within)).collect();
                match others.pop() {
                    // A choice of one is that one, with what stands beside the choice.
                    Some(Value::Object(only)) if others.is_empty() => {
                        for (name, value) in only {
                            out.entry(name).or_insert(value);
                        }
                    }
                    last => {
                        others.extend(last);
                        out.insert("anyOf".into(), others.into());
                    }
                }
            }
            ("allOf", Value::Array(all)) if all.len() == 1 => {
                if let Value::Object(only) = written(&all[0], whole, within) {
                    out.extend(only);
                }
            }
            ("const", value) => drop(out.insert("enum".into(), json!([value]))),
            ("properties", Value::Object(all)) => {
                let all = all.iter();
                let all = all.map(|(name, value)| (name.clone(), written(value, whole, within)));
                let all: Map<_, _> = all.collect();
                out.insert("properties".into(), all.into());
            }
            ("items" | "additionalProperties", Value::Object(_)) => {
                out.insert(name.clone(), written(value, whole, within));
            }
            ("prefixItems", Value::Array(all)) => {
                let all = all.iter().map(|one| written(one, whole, within));
                let all: Vec<_> = all.collect();
                out.entry("items").or_insert(json!({ "anyOf": all }));
            }
            ("nullable", value) => is_nullable |= value == true,
            (name, value) => drop(out.insert(name.to_owned(), value.clone())),
        }
    }
    if out.get("type").is_some_and(|kind| kind == "array") {
        let items = out.entry("items").or_insert(Value::Null);
        let is_said = items.as_object().is_some_and(|fields| !fields.is_empty());
        if !is_said {
            *items = json!({ "type": "string" });
        }
    }
    if is_nullable {
        out.insert("nullable".into(), true.into());
    }
    Value::Object(out)
}

/// Writes what a schema refers to, with the fields beside the reference.
fn referred<'a>(
    fields: &'a Map<String, Value>,
    reference: &'a str,
    whole: &'a Value,
    within: &mut Vec<&'a str>,
) -> Value {
    let target = whole.pointer(reference.trim_start_matches('#'));
    let mut out = match target {
        // What refers to itself has no end: the model may write anything there.
        Some(target) if !within.contains(&reference) => {
            within.push(reference);
            let out = written(target, whole, within);
            within.pop();
            out
        }
        _ => json!({ "type": "object" }),
    };
    for (name, value) in fields {
        if name != "$ref" {
            out[name] = value.clone();
        }
    }
    out
}

/// Returns the schema of one of several types.
fn of_type(kind: &Value) -> Value {
    if kind == "array" {
        json!({ "type": kind, "items": { "type": "string" } })
    } else {
        json!({ "type": kind })
    }
}

/// Returns a schema as a server takes it.
pub(super) fn taken(schema: &Value, is_open_api: bool) -> Cow<'_, Value> {
    if is_open_api {
        Cow::Owned(self::schema(schema))
    } else {
        Cow::Borrowed(schema)
    }
}
