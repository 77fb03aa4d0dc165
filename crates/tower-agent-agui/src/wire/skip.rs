//! Serde helpers that omit empty values and enforce bounds.

use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;
use tower_agent::error::Resolution;

/// The largest integer that every JSON parser represents exactly.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// Returns whether the value is absent: clients reject `null` in optional fields.
pub(super) fn absent(value: &Option<Value>) -> bool {
    matches!(value, None | Some(Value::Null))
}

/// Serialises a count within the protocol's range.
pub(super) fn count<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(count) => serializer.serialize_u64((*count).min(MAX_SAFE)),
        None => serializer.serialize_none(),
    }
}

/// Reads `null` as the default.
pub(super) fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads one of several strings. serde_json would also accept objects, and report `null` as invalid
/// JSON.
pub(super) fn word<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// Reads the payload of an answer.
pub(super) fn payload<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    let payload = Resolution::deserialize_payload(deserializer)?;
    Ok((!payload.is_null()).then_some(payload))
}
