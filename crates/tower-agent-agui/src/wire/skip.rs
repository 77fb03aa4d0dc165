//! What is left out, and what is kept within bounds, when a value is written or read.

use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;

/// The largest whole number that every JSON reader keeps exact.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// Whether there is no value to write: a `null` in an optional place is a fault to the reader.
pub(super) fn absent(value: &Option<Value>) -> bool {
    matches!(value, None | Some(Value::Null))
}

/// A count that the protocol can carry.
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

/// Reads one of several words. JSON's reader would take objects as well, and call `null` no JSON.
pub(super) fn word<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}
