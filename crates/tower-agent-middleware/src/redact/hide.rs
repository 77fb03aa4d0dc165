//! Replaces texts in messages, parts and JSON. What contains a changed text is copied.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use tower_agent::message::{Arguments, Message, Part, ProviderData};

/// Returns the replacement of a text, or `None` to leave it.
pub(super) type Replaces<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The replacements in a message.
pub(super) struct Replacements<'a> {
    pub(super) text: Box<Replaces<'a>>,
    /// Replaces the names of tools.
    pub(super) name: Box<Replaces<'a>>,
    /// Leaves the arguments of tool calls.
    pub(super) keeps_arguments: bool,
}

pub(super) fn message(message: &Message, change: &Replacements<'_>) -> Option<Message> {
    let parts = parts(message.parts(), change)?;
    let mut changed = message.clone();
    *changed.parts_mut() = parts;
    Some(changed)
}

pub(super) fn parts(parts: &[Part], change: &Replacements<'_>) -> Option<Vec<Part>> {
    let mut changed = None;
    for (index, one) in parts.iter().enumerate() {
        if let Some(other) = part(one, change) {
            // Copied at the first change: most messages have none.
            changed.get_or_insert_with(|| parts.to_vec())[index] = other;
        }
    }
    changed
}

/// Provider data of a changed text may repeat or sign it, so it is dropped with the text. Provider
/// data of a tool call is kept, since it must be sent back with the call.
fn part(part: &Part, change: &Replacements<'_>) -> Option<Part> {
    let mut changed = part.clone();
    match &mut changed {
        Part::Text(text) => {
            text.text = (change.text)(&text.text)?;
            text.provider = ProviderData::default();
        }
        Part::Reasoning(reasoning) => {
            reasoning.text = (change.text)(&reasoning.text)?;
            reasoning.provider = ProviderData::default();
        }
        Part::ToolCall(call) => {
            let name = (change.name)(&call.name);
            let hidden = (!change.keeps_arguments)
                .then(|| arguments(&call.arguments, &*change.text))
                .flatten();
            if name.is_none() && hidden.is_none() {
                return None;
            }
            call.name = name.map_or_else(|| call.name.clone(), Into::into);
            call.arguments = hidden.unwrap_or_else(|| call.arguments.clone());
        }
        Part::ToolResult(result) => {
            let name = (change.name)(&result.name);
            let hidden = parts(&result.parts, change);
            if name.is_none() && hidden.is_none() {
                return None;
            }
            result.name = name.map_or_else(|| result.name.clone(), Into::into);
            result.parts = hidden.unwrap_or_else(|| result.parts.clone());
        }
        Part::Document(document) => {
            document.name = Some((change.text)(document.name.as_deref()?)?.into());
            document.provider = ProviderData::default();
        }
        // Their data is not text.
        Part::Image(_) | Part::Audio(_) | Part::Provider(_) => return None,
        // A kind of part that is newer than this crate may contain text: all of it is hidden.
        _ => changed = Part::from_text("[part]"),
    }
    Some(changed)
}

/// Text that is no JSON stays none.
pub(super) fn arguments(arguments: &Arguments, change: &Replaces<'_>) -> Option<Arguments> {
    let seen = arguments.value();
    match value(seen, change) {
        Some(Value::String(text)) if !arguments.is_json() => Some(Arguments::from_text(text)),
        Some(hidden) => Some(hidden.into()),
        // Of a key that stands there twice only the last was looked at.
        None if arguments
            .parse()
            .is_ok_and(|Entries(all)| all != entries(seen)) =>
        {
            Some(seen.clone().into())
        }
        None => None,
    }
}

/// Returns the number of entries of the objects in a value.
fn entries(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(entries).sum(),
        Value::Object(object) => object.values().map(|value| 1 + entries(value)).sum(),
        _ => 0,
    }
}

/// Returns the number of entries of the objects in a text.
struct Entries(usize);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Count).map(Self)
    }
}

struct Count;

impl<'de> Visitor<'de> for Count {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some(Entries(more)) = items.next_element()? {
            count += more;
        }
        Ok(count)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some((IgnoredAny, Entries(more))) = entries.next_entry()? {
            count += 1 + more;
        }
        Ok(count)
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, _: &str) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }
}

pub(super) fn value(json: &Value, change: &Replaces<'_>) -> Option<Value> {
    match json {
        Value::String(text) => change(text).map(Value::String),
        // A card number may be sent as a number. Hidden, it is a text.
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

fn object(entries: &Map<String, Value>, change: &Replaces<'_>) -> Option<Map<String, Value>> {
    let mut is_changed = false;
    let mut changed = Map::new();
    for (key, item) in entries {
        let other_key = change(key);
        let other = value(item, change);
        is_changed |= other_key.is_some() || other.is_some();
        let mut key = other_key.unwrap_or_else(|| key.clone());
        // Two keys may have become equal.
        while changed.contains_key(&key) {
            key.push('\'');
        }
        changed.insert(key, other.unwrap_or_else(|| item.clone()));
    }
    is_changed.then_some(changed)
}
