use serde::Serialize;
use serde_json::{Map, Value};

use super::items::Items;
use super::write::{self, close};
use crate::word::is_word;
use tower_agent::error::Result;

/// Writes a JSON object field by field, without an intermediate tree.
#[derive(Debug)]
#[must_use = "an object needs an end"]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// The caller's fields, which replace fields of the same name.
    extra: Option<&'a Map<String, Value>>,
}

impl<'a> Object<'a> {
    /// Starts an object.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, extra: None }
    }

    /// Starts an object that ends with the fields of `extra`. They replace fields of the same name;
    /// a `null` among them removes the field.
    pub fn with_extra(
        out: &'a mut Vec<u8>,
        extra: impl Into<Option<&'a Map<String, Value>>>,
    ) -> Self {
        Self {
            extra: extra.into(),
            ..Self::new(out)
        }
    }

    /// Appends a field.
    ///
    /// # Errors
    ///
    /// Fails if the value cannot be serialised.
    pub fn field(&mut self, name: &str, value: impl Serialize) -> Result<()> {
        self.field_with(name, |out| write::write(out, value))
    }

    /// Appends a field, if there is a value.
    ///
    /// # Errors
    ///
    /// Fails if the value cannot be serialised.
    pub fn optional(&mut self, name: &str, value: Option<impl Serialize>) -> Result<()> {
        value.map_or(Ok(()), |value| self.field(name, value))
    }

    /// Appends a field whose value is appended by `write`.
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn field_with(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        // The caller's value follows at the end; a name must not stand in an object twice.
        if self.extra.is_some_and(|extra| extra.contains_key(name)) {
            return Ok(());
        }
        // The names of protocols are words, and need no search for characters to escape.
        if name.bytes().all(is_word) {
            self.out.push(b'"');
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(b"\":");
        } else {
            write::write(self.out, name)?;
            self.out.push(b':');
        }
        write(self.out)?;
        self.out.push(b',');
        Ok(())
    }

    /// Appends a field that is an array, whose items are appended by `write`.
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn array(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Items<'_>) -> Result<()>,
    ) -> Result<()> {
        self.field_with(name, |out| Items::array(out, write))
    }

    /// Appends the extra fields that are not `null`, and ends the object.
    ///
    /// # Errors
    ///
    /// Fails if a value cannot be serialised.
    pub fn end(self) -> Result<()> {
        self.end_with(|extra| !extra.is_null())
    }

    /// Appends the extra fields, those that are `null` included, and ends the object.
    ///
    /// # Errors
    ///
    /// Fails if a value cannot be serialised.
    pub fn end_with_nulls(self) -> Result<()> {
        self.end_with(|_| true)
    }

    fn end_with(mut self, takes: impl Fn(&Value) -> bool) -> Result<()> {
        // Taken, since `field` leaves out the names that are in it.
        for (name, value) in self.extra.take().into_iter().flatten() {
            if takes(value) {
                self.field(name, value)?;
            }
        }
        close(self.out, b'}');
        Ok(())
    }
}
