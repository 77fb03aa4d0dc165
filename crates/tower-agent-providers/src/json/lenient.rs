//! Lenient deserialisation of what servers send instead of the protocol, for serde's
//! `deserialize_with`.
//!
//! ```
//! use serde::Deserialize;
//! use tower_agent_providers::json::lenient::{or_default, text};
//!
//! #[derive(Default, Deserialize)]
//! #[serde(default)]
//! struct Answer {
//!     #[serde(deserialize_with = "or_default")]
//!     tokens: u64,
//!     #[serde(deserialize_with = "text")]
//!     content: String,
//! }
//!
//! let json = r#"{"tokens": "many", "content": [{"type": "text", "text": "Hi."}]}"#;
//! let answer: Answer = serde_json::from_str(json)?;
//! assert_eq!((answer.tokens, &*answer.content), (0, "Hi."));
//! # Ok::<_, serde_json::Error>(())
//! ```

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

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
    // By way of a value: a deserialiser that failed inside a field could not go on after it.
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Reads a count, such as of tokens, and anything else as the default: text, and a number that is
/// no count, as it is negative, fractional or too large. The answer beside it has been paid for,
/// and is not thrown away for a count that is not known.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn count<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + From<u64>,
{
    let count = wanted(deserializer, ReadCount)?;
    Ok(count.map(T::from).unwrap_or_default())
}

struct ReadCount;

impl Wanted<'_> for ReadCount {
    type Value = u64;

    fn number<E: Error>(self, number: Number) -> Result<Option<u64>, E> {
        Ok(whole(&number))
    }
}

/// Returns a number that is a count. Some servers write `12.0`.
fn whole(number: &Number) -> Option<u64> {
    /// From here on, not every whole number has a form of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_u64().or_else(|| {
        let number = number.as_f64()?;
        let is_count = (0.0..EXACT).contains(&number) && number.fract() == 0.0;
        // Exact, as it has been checked.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        is_count.then_some(number as u64)
    })
}

/// Reads an object as [`object`] does, and anything else as the default.
///
/// # Errors
///
/// Fails for invalid JSON, and if a field of the object is not that of a `T`.
pub fn object_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(object(deserializer)?.unwrap_or_default())
}

/// Reads an object, and `null` and values of any other type as `None`. Unlike with
/// [`or_default`], a field of the object that is wrong is an error, and nothing is read twice.
///
/// # Errors
///
/// Fails for invalid JSON, and if a field of the object is not that of a `T`.
pub fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    wanted(deserializer, ReadObject(PhantomData))
}

/// Reads a list, without what is `null` in it, and anything else as an empty list.
///
/// # Errors
///
/// Fails for invalid JSON, and if an item is not a `T`.
pub fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(optional_list(deserializer)?.unwrap_or_default())
}

/// Reads a list as [`list`] does, and anything else as `None`.
///
/// # Errors
///
/// Fails for invalid JSON, and if an item is not a `T`.
pub fn optional_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    wanted(deserializer, ReadList(PhantomData))
}

/// Reads a string, without copying one that has no escapes, and `null` and values of any other type
/// as `None`.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn string<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'de, str>>, D::Error> {
    wanted(deserializer, ReadText)
}

/// Reads a whole number from zero on, and `null` and values of any other type as `None`.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    wanted(deserializer, ReadNumber)
}

/// Reads what is wanted, and `null` and values of any other type as `None`.
pub(crate) fn wanted<'de, D, W>(deserializer: D, wanted: W) -> Result<Option<W::Value>, D::Error>
where
    D: Deserializer<'de>,
    W: Wanted<'de>,
{
    deserializer.deserialize_any(OrNone(wanted))
}

/// The types of JSON that are read, each as `None` unless its method is overridden.
pub(crate) trait Wanted<'de>: Sized {
    type Value;

    fn map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Self::Value>, A::Error> {
        // serde requires that a visitor reads a map to its end.
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn borrowed_text(self, _: &'de str) -> Option<Self::Value> {
        None
    }

    fn text(self, _: &str) -> Option<Self::Value> {
        None
    }

    fn seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Self::Value>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn number<E: Error>(self, _: Number) -> Result<Option<Self::Value>, E> {
        Ok(None)
    }
}

struct ReadObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Wanted<'de> for ReadObject<T> {
    type Value = T;

    fn map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

struct ReadList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Wanted<'de> for ReadList<T> {
    type Value = Vec<T>;

    fn seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Vec<T>>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Option<T>>()? {
            list.extend(item);
        }
        Ok(Some(list))
    }
}

struct ReadText;

impl<'de> Wanted<'de> for ReadText {
    type Value = Cow<'de, str>;

    fn borrowed_text(self, text: &'de str) -> Option<Cow<'de, str>> {
        Some(Cow::Borrowed(text))
    }

    fn text(self, text: &str) -> Option<Cow<'de, str>> {
        Some(Cow::Owned(text.to_owned()))
    }
}

/// Reads a string, or the texts of a list.
struct ReadTexts;

impl<'de> Wanted<'de> for ReadTexts {
    type Value = Cow<'de, str>;

    fn borrowed_text(self, text: &'de str) -> Option<Cow<'de, str>> {
        ReadText.borrowed_text(text)
    }

    fn text(self, text: &str) -> Option<Cow<'de, str>> {
        ReadText.text(text)
    }

    fn seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Cow<'de, str>>, A::Error> {
        let mut text = String::new();
        while let Some(part) = seq.next_element::<Value>()? {
            text.push_str(part["text"].as_str().or(part.as_str()).unwrap_or_default());
        }
        Ok(Some(Cow::Owned(text)))
    }
}

struct ReadNumber;

impl Wanted<'_> for ReadNumber {
    type Value = u64;

    fn number<E: Error>(self, number: Number) -> Result<Option<u64>, E> {
        Ok(number.as_u64())
    }
}

/// Reads what is wanted, and a value of any other type as `None`.
struct OrNone<W>(W);

impl<'de, W: Wanted<'de>> Visitor<'de> for OrNone<W> {
    type Value = Option<W::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        self.0.map(map)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(self.0.borrowed_text(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        self.0.seq(seq)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.0.number(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.0.number(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        let number = Number::from_f64(number);
        number.map_or(Ok(None), |number| self.0.number(number))
    }
}

/// Returns whether a value says something: it is neither `null` nor `false`, and not empty.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn is_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => false,
        Value::Bool(is_set) => is_set,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    })
}

/// Reads an error. Some servers send `null`, `false` or an empty text where there is none.
#[cfg(any(feature = "ollama", feature = "openai"))]
pub(crate) fn error<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let error = Value::deserialize(deserializer)?;
    let is_none = matches!(error, Value::Null | Value::Bool(false)) || error == "";
    Ok((!is_none).then_some(error))
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

/// Reads a string, a list of parts with a `text`, or nothing, as text: a [`String`], or a [`Cow`]
/// that is borrowed if the string has no escapes.
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Cow<'de, str>>,
{
    let text = wanted(deserializer, ReadTexts)?;
    Ok(T::from(text.unwrap_or_default()))
}

/// Reads a string, nothing as the empty string, and any other JSON as its text, byte for byte: with
/// its spacing, the order of its keys and all digits. The text is a [`String`], or a [`Cow`] that
/// is borrowed where that is possible.
///
/// It works only on JSON text, not on a [`Value`].
///
/// # Errors
///
/// Fails for invalid JSON.
pub fn exact_json_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Cow<'de, str>>,
{
    let Some(json) = <Option<&'de RawValue>>::deserialize(deserializer)? else {
        return Ok(T::from(Cow::Borrowed("")));
    };
    // A string stands for its text; anything else for itself.
    let mut reader = serde_json::Deserializer::from_str(json.get());
    let text = string(&mut reader).ok().flatten();
    Ok(T::from(text.unwrap_or(Cow::Borrowed(json.get()))))
}
