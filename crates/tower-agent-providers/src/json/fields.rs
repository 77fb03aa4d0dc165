//! Objects that are read field by field into a value that is already there. Nothing is moved, and a
//! field that is not sent costs nothing: this is for the chunks of a stream, of which a response
//! has thousands. With serde's derive, `delta from chat completions` in `benches/counts.json` has
//! 17 % more instructions, and `delta from Responses` 6 %.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::lenient;

/// The fields of an object.
pub(crate) trait ReadFields<'de> {
    /// Reads the value of one field, also of a field that is not known: as [`IgnoredAny`].
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads an object into a value. Returns `false` for `null`, which changes nothing.
#[derive(Debug)]
pub(crate) struct Fill<'v, T>(pub(crate) &'v mut T);

impl<'de, T: ReadFields<'de>> DeserializeSeed<'de> for Fill<'_, T> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: ReadFields<'de>> Visitor<'de> for Fill<'_, T> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        while let Some(name) = map.next_key_seed(FieldName)? {
            self.0.field(&name, &mut map)?;
        }
        Ok(true)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

/// Reads the name of a field, without copying one that has no escapes.
struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for FieldName {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// The choices of a response, of which the first one becomes the message: callers can ask for
/// several.
#[derive(Debug, Default)]
pub(crate) struct Choices<C> {
    /// The choice that is numbered 0, which is the default until there is one.
    pub(crate) first: C,
    pub(crate) has_first: bool,
    pub(crate) has_others: bool,
}

/// One of several [`Choices`].
pub(crate) trait Choice {
    /// Returns its number, 0 if it has none.
    fn index(&self) -> u64;
}

/// Reads a list; `null` is a list without any.
impl<'de, C: Choice + Default + ReadFields<'de>> DeserializeSeed<'de> for &mut Choices<C> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, C: Choice + Default + ReadFields<'de>> Visitor<'de> for &mut Choices<C> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while !self.has_first {
            let Some(is_object) = seq.next_element_seed(Fill(&mut self.first))? else {
                return Ok(());
            };
            self.has_first = is_object && self.first.index() == 0;
            if !self.has_first {
                self.has_others = true;
                self.first = C::default();
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            self.has_others = true;
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A text, as [`lenient::text`] reads it.
#[cfg(feature = "openai")]
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct LenientText<'a> {
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(crate) text: Cow<'a, str>,
}

/// A string, as [`lenient::string`] reads it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Word<'a> {
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(crate) word: Option<Cow<'a, str>>,
}

/// A number from zero on, as [`lenient::number`] reads it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Number {
    #[serde(deserialize_with = "lenient::number")]
    pub(crate) number: Option<u64>,
}

/// A value of which is known that it says something, as by [`lenient::is_set`].
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Presence {
    #[serde(deserialize_with = "lenient::is_set")]
    pub(crate) is_set: bool,
}
