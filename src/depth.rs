//! Keeps stored JSON readable: JSON readers limit the nesting (serde_json reads 127 levels), and
//! writers do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::{Error, Serialize, Serializer};
use serde_json::{Map, Value};

/// The number of levels of arrays and objects that a stored value may have. What surrounds it in
/// the stored form, conversations in conversations included, needs the rest.
pub(crate) const MAX_LEVELS: usize = 64;

/// JSON that an application, a tool or a provider has made.
pub(crate) trait Nested {
    /// Returns whether there are more levels of arrays and objects than this.
    fn is_deeper_than(&self, levels: usize) -> bool;
}

impl Nested for Value {
    fn is_deeper_than(&self, levels: usize) -> bool {
        match self {
            Self::Array(values) => {
                levels == 0 || values.iter().any(|value| value.is_deeper_than(levels - 1))
            }
            Self::Object(values) => values.is_deeper_than(levels),
            _ => false,
        }
    }
}

impl Nested for Map<String, Value> {
    fn is_deeper_than(&self, levels: usize) -> bool {
        levels == 0 || self.values().any(|value| value.is_deeper_than(levels - 1))
    }
}

impl Nested for BTreeMap<String, Value> {
    fn is_deeper_than(&self, levels: usize) -> bool {
        levels == 0 || self.values().any(|value| value.is_deeper_than(levels - 1))
    }
}

impl<T: Nested> Nested for Arc<T> {
    fn is_deeper_than(&self, levels: usize) -> bool {
        (**self).is_deeper_than(levels)
    }
}

impl<T: Nested> Nested for Option<T> {
    fn is_deeper_than(&self, levels: usize) -> bool {
        self.as_ref()
            .is_some_and(|value| value.is_deeper_than(levels))
    }
}

/// Serialises a value, for `serialize_with`.
///
/// # Errors
///
/// Fails if it could not be read again.
pub(crate) fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Nested + Serialize,
    S: Serializer,
{
    check(value)?;
    value.serialize(serializer)
}

/// Fails if a value could not be read again.
pub(crate) fn check<E: Error>(value: &impl Nested) -> Result<(), E> {
    if value.is_deeper_than(MAX_LEVELS) {
        return Err(E::custom(format_args!(
            "JSON nested more than {MAX_LEVELS} levels deep cannot be stored, as it could not be \
             read again"
        )));
    }
    Ok(())
}
