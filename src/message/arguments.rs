use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::characters::whole_characters;

/// The arguments of a tool call: the model's own text. Cloning is O(1).
///
/// The text is kept exactly, with its spacing, the order of its keys and all digits of its numbers,
/// and is sent back to the provider unchanged. It is parsed on the first access to the
/// [`value`](Self::value). Only an object that a model has put into a JSON string is taken out of
/// it, so that whoever reads the arguments finds what the tool gets.
///
/// Two arguments are equal if their texts are; to compare their meaning, compare with a [`Value`].
/// They serialise as a string; other JSON types are accepted when deserialising.
///
/// ```
/// use serde_json::json;
/// use tower_agent::message::Arguments;
///
/// let arguments = Arguments::from_text(r#"{ "b": 100000000000000000000000000001, "a": 1 }"#);
/// assert_eq!(arguments.value()["a"], 1);
/// assert_eq!(arguments.as_str(), r#"{ "b": 100000000000000000000000000001, "a": 1 }"#);
/// assert_eq!(Arguments::from(json!({ "a": 1 })).as_str(), r#"{"a":1}"#);
/// ```
#[derive(Clone)]
pub struct Arguments(Arc<Parsed>);

struct Parsed {
    text: String,
    value: OnceLock<Value>,
}

impl Arguments {
    /// Creates arguments from the model's text, even if it is not JSON. Empty text or white space
    /// means no arguments: `{}`. Whether the model was about to write some says the [finish
    /// reason](super::FinishReason::is_cut): an agent makes no call of an answer that was cut off.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        let mut text = text.into();
        // Some models send nothing for a tool without parameters.
        if text.trim_ascii_start().is_empty() {
            text = "{}".to_owned();
        }
        while let Some(object) = object_in_string(&text) {
            text = object;
        }
        Self(Arc::new(Parsed {
            text,
            value: OnceLock::new(),
        }))
    }

    /// Returns the text, as the model wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns the parsed value; text that is not JSON becomes a JSON string. Numbers that a
    /// [`Value`] cannot represent are rounded.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.0.value.get_or_init(|| {
            self.parse()
                .unwrap_or_else(|_| Value::String(self.as_str().to_owned()))
        })
    }

    /// Returns whether the text is JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        // A string may stand for text that is not JSON: only then is the text parsed again.
        !self.value().is_string() || self.parse::<Value>().is_ok()
    }

    /// Parses the text as a `T`, without an intermediate [`Value`]. Half a character in it, which
    /// no string can have, is read as `U+FFFD`.
    ///
    /// # Errors
    ///
    /// Fails if the text is not the JSON of a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str()).or_else(|error| match whole_characters(self.as_str()) {
            Some(text) => serde_json::from_str(&text),
            None => Err(error),
        })
    }
}

/// Returns the text of an object that is encoded twice, as some models write their arguments.
fn object_in_string(text: &str) -> Option<String> {
    // The arguments of nearly every call begin with a bracket.
    if !text.trim_ascii_start().starts_with('"') {
        return None;
    }
    let inner: String = serde_json::from_str(text).ok()?;
    // A string that holds anything else may be what the model means.
    let is_encoded = match inner.trim_ascii_start().as_bytes().first() {
        Some(b'{') => serde_json::from_str::<IgnoredAny>(&inner).is_ok(),
        Some(b'"') => object_in_string(&inner).is_some(),
        _ => false,
    };
    is_encoded.then_some(inner)
}

/// Uses the value's text, without white space.
impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        // Same as `Display`, but faster; a `Value` always serialises.
        let text = serde_json::to_string(&value).unwrap_or_default();
        Self(Arc::new(Parsed {
            text,
            value: value.into(),
        }))
    }
}

impl Default for Arguments {
    /// No arguments: `{}`.
    fn default() -> Self {
        Self::from_text("{}")
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl Eq for Arguments {}

impl PartialEq<Value> for Arguments {
    fn eq(&self, other: &Value) -> bool {
        self.value() == other
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| match value {
            Value::String(text) => Self::from_text(text),
            value => Self::from(value),
        })
    }
}
