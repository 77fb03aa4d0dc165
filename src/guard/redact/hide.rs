//! Goes through messages, parts and JSON. Where a text changes, the whole is copied.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::message::{Message, Part, ProviderData};

/// What to put in a text's place; `None` leaves it.
pub(super) type Change<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(super) fn message(message: &Message, change: Change<'_>) -> Option<Message> {
    let parts = parts(message.parts(), change)?;
    let mut changed = message.clone();
    *changed.parts_mut() = parts;
    Some(changed)
}

pub(super) fn parts(parts: &[Part], change: Change<'_>) -> Option<Vec<Part>> {
    let mut changed = None;
    for (index, one) in parts.iter().enumerate() {
        if let Some(other) = part(one, change) {
            changed.get_or_insert_with(|| parts.to_vec())[index] = other;
        }
    }
    changed
}

/// What a provider added to a text may repeat it or sign it: it goes with the text. That of a tool
/// call must come back with the call.
fn part(part: &Part, change: Change<'_>) -> Option<Part> {
    let mut changed = part.clone();
    match &mut changed {
        Part::Text(text) => {
            text.text = change(&text.text)?;
            text.provider = ProviderData::default();
        }
        Part::Reasoning(reasoning) => {
            reasoning.text = change(&reasoning.text)?;
            reasoning.provider = ProviderData::default();
        }
        Part::ToolCall(call) => {
            call.arguments = Arc::new(value(&call.arguments, change)?);
        }
        Part::ToolResult(result) => result.parts = parts(&result.parts, change)?,
        _ => return None,
    }
    Some(changed)
}

pub(super) fn value(json: &Value, change: Change<'_>) -> Option<Value> {
    match json {
        Value::String(text) => change(text).map(Value::String),
        Value::Number(number) => change(&number.to_string()).map(Value::String),
        Value::Array(items) => {
            let mut changed = None;
            for (index, item) in items.iter().enumerate() {
                if let Some(other) = value(item, change) {
                    changed.get_or_insert_with(|| items.clone())[index] = other;
                }
            }
            changed.map(Value::Array)
        }
        Value::Object(entries) => object(entries, change).map(Value::Object),
        Value::Null | Value::Bool(_) => None,
    }
}

fn object(entries: &Map<String, Value>, change: Change<'_>) -> Option<Map<String, Value>> {
    let mut is_changed = false;
    let mut changed = Map::new();
    for (key, item) in entries {
        let (other_key, other) = (change(key), value(item, change));
        is_changed |= other_key.is_some() || other.is_some();
        let mut key = other_key.unwrap_or_else(|| key.clone());
        // Two keys may have become one.
        while changed.contains_key(&key) {
            key.push('\'');
        }
        changed.insert(key, other.unwrap_or_else(|| item.clone()));
    }
    is_changed.then_some(changed)
}
