use serde::Serialize;
use serde_json::{Map, Value};

use super::write::{self, close};
use crate::word::is_word;
use tower_agent::error::Result;

/// Writes a JSON object field by field, without an intermediate tree.
#[derive(Debug)]
#[must_use = "an object needs an end"]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// These replace fields of the same name.
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
        if self.extra.is_some_and(|extra| extra.contains_key(name)) {
            return Ok(());
        }
        match name.bytes().all(is_word) {
            true => {
                self.out.push(b'"');
                self.out.extend_from_slice(name.as_bytes());
                self.out.extend_from_slice(b"\":");
            }
            false => {
                write::write(self.out, name)?;
                self.out.push(b':');
            }
        }
        write(self.out)?;
        self.out.push(b',');
        Ok(())
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
        for (name, value) in self
            .extra
            .take()
            .into_iter()
            .flatten()
            .filter(|(_, it)| takes(it))
        {
            self.field(name, value)?;
        }
        close(self.out, b'}');
        Ok(())
    }
}
