//! Lenient deserialisation of what servers send instead of the protocol, for serde's
//! `deserialize_with`.
//!
//! ```
//! use serde::Deserialize;
//! use tower_agent_providers::json::lenient::{or_default, text};
//!
//! #[derive(Default, Deserialize)]
//! #[serde(default)]
//! struct Said {
//!     #[serde(deserialize_with = "or_default")]
//!     tokens: u64,
//!     #[serde(deserialize_with = "text")]
//!     content: String,
//! }
//!
//! let said = r#"{"tokens": "many", "content": [{"type": "text", "text": "Hi."}]}"#;
//! let said: Said = serde_json::from_str(said)?;
//! assert_eq!((said.tokens, &*said.content), (0, "Hi."));
//! # Ok::<_, serde_json::Error>(())
//! ```

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads `null` and values of the wrong type as the default.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Reads `null` as the default.
///
/// # Errors
///
/// Fails for invalid JSON and values of the wrong type.
pub fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a string, a list of parts with a `text`, or nothing, as text.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str().or(part.as_str())).collect()
        }
        _ => String::new(),
    })
}

/// Reads a string, nothing as the empty string, and any other JSON as its text.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn json_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    })
}
