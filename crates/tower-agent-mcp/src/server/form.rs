//! Interrupts as forms that MCP allows.

use rmcp::model::{ElicitRequestParams, ElicitationSchema, PrimitiveSchemaDefinition};
use serde_json::{Map, Value, json};
use tower_agent::Interrupt;

/// The one field of a form whose schema MCP cannot carry.
pub(super) const ANSWER: &str = "answer";

/// Converts an interrupt to a question. `None` if no form can be made of it.
pub(super) fn question(interrupt: &Interrupt) -> Option<ElicitRequestParams> {
    let message = message(interrupt);
    if let Some(url) = url(interrupt) {
        return Some(ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message,
            url: url.to_owned(),
            elicitation_id: interrupt.id.clone(),
        });
    }
    // MCP allows no nested fields in a form. A text field for JSON is less convenient, but any
    // interrupt can be answered in it.
    let schema = simple(&interrupt.response_schema).or_else(|| {
        let description = match &interrupt.response_schema {
            Value::Null => "JSON.".to_owned(),
            schema => format!("JSON that matches this schema: {schema}"),
        };
        read(json!({
            "type": "object",
            "properties": { ANSWER: { "type": "string", "description": description } },
            "required": [ANSWER],
        }))
    })?;
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: schema,
    })
}

/// Returns whether the interrupt's answer is the form's content, and not JSON in its one field.
pub(super) fn is_simple(interrupt: &Interrupt) -> bool {
    simple(&interrupt.response_schema).is_some()
}

/// Returns the address of an interrupt that waits for a visit of a page.
pub(super) fn url(interrupt: &Interrupt) -> Option<&str> {
    // The mode decides, since any tool may have a field `url` in its payload.
    if interrupt.payload.get("mode").and_then(Value::as_str) != Some("url") {
        return None;
    }
    interrupt.payload.get("url").and_then(Value::as_str)
}

/// Returns the text for the person who answers, with the payload: a form has no other place for
/// it.
pub(super) fn message(interrupt: &Interrupt) -> String {
    let message = interrupt.message.as_ref().unwrap_or(&interrupt.reason);
    match &interrupt.payload {
        Value::Null => message.clone(),
        payload => format!("{message}\n{payload}"),
    }
}

/// Returns the schema without optional fields that MCP does not allow; `None` if a required one is
/// among them.
fn simple(schema: &Value) -> Option<ElicitationSchema> {
    let mut schema = schema.as_object()?.clone();
    let properties = schema.get("properties")?.as_object()?;
    let mut primitives = Map::new();
    for (name, field) in properties {
        if is_primitive(field) {
            primitives.insert(name.clone(), field.clone());
        }
    }
    let required = schema.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    // Without a required field, no answer would match the interrupt's schema.
    if primitives.is_empty() || !required.all(|name| primitives.contains_key(name)) {
        return None;
    }
    schema.insert("properties".to_owned(), primitives.into());
    read(schema.into())
}

fn is_primitive(field: &Value) -> bool {
    field.is_object() && serde_json::from_value::<PrimitiveSchemaDefinition>(field.clone()).is_ok()
}

fn read(schema: Value) -> Option<ElicitationSchema> {
    serde_json::from_value(schema).ok()
}
