use serde::Serialize;
use serde_json::{Map, Value};

use super::items::Items;
use super::merge;
use super::write::{self, close};
use crate::word::is_word;
use tower_agent::error::Result;

/// Writes a JSON object field by field, without an intermediate tree.
#[derive(Debug)]
#[must_use = "an object needs an end"]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// The caller's fields.
    extra: Option<&'a Map<String, Value>>,
    /// Set in the body of a request that the caller has fields for.
    merging: Option<Box<Merging<'a>>>,
}

/// The merge of the caller's fields with those of a body.
#[derive(Debug)]
struct Merging<'a> {
    guarded: &'static [&'static str],
    /// The names of the caller's fields that are merged, or removed ours: the end has not to append
    /// them.
    done: Vec<&'a str>,
}

impl<'a> Object<'a> {
    /// Starts an object.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self {
            out,
            extra: None,
            merging: None,
        }
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

    /// Starts the body of a request, with which `extra`, the caller's
    /// [fields](tower_agent::model::Settings::extra), are merged: objects field by field at any
    /// depth, the items of a list after ours. Any other value replaces ours, and `null` removes it.
    ///
    /// No value replaces or removes a field that is `guarded`, which is a name or a path such as
    /// `text.format`: a field fails that would. Guard what the agent relies on, such as its
    /// messages, its tools and the schema of its answer.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent_providers::json::Object;
    ///
    /// let guarded = &["tools", "text.format"];
    /// let extra = json!({ "text": { "verbosity": "low" }, "tools": [{ "type": "web_search" }] });
    /// let mut body = Vec::new();
    /// let mut object = Object::body(&mut body, extra.as_object().unwrap(), guarded);
    /// object.field("tools", [json!({ "type": "function" })])?;
    /// object.field("text", json!({ "format": { "type": "text" } }))?;
    /// object.end()?;
    /// let body: serde_json::Value = serde_json::from_slice(&body)?;
    /// assert_eq!(body["text"], json!({ "format": { "type": "text" }, "verbosity": "low" }));
    /// assert_eq!(body["tools"].as_array().unwrap().len(), 2);
    ///
    /// let extra = json!({ "tools": null });
    /// let mut body = Vec::new();
    /// let mut object = Object::body(&mut body, extra.as_object().unwrap(), guarded);
    /// assert!(object.field("tools", [json!({ "type": "function" })]).is_err());
    /// # drop(object.end());
    /// # Ok::<_, tower_agent::BoxError>(())
    /// ```
    pub fn body(
        out: &'a mut Vec<u8>,
        extra: &'a Map<String, Value>,
        guarded: &'static [&'static str],
    ) -> Self {
        if extra.is_empty() {
            return Self::new(out);
        }
        let merging = Merging {
            guarded,
            done: Vec::new(),
        };
        Self {
            merging: Some(Box::new(merging)),
            ..Self::with_extra(out, extra)
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
        // Nearly always the caller has no fields.
        let theirs = match self.extra {
            Some(extra) => extra.get_key_value(name),
            None => None,
        };
        if theirs.is_some() && self.merging.is_none() {
            // The caller's value follows at the end; a name must not stand in an object twice.
            return Ok(());
        }
        let start = self.out.len();
        self.append(name, write)?;
        match theirs {
            Some((name, value)) => self.merge(start, name, value),
            None => Ok(()),
        }
    }

    /// Merges the caller's value with the field that begins at `start`, the last one.
    #[cold]
    fn merge(&mut self, start: usize, name: &'a str, theirs: &Value) -> Result<()> {
        let Some(merging) = &mut self.merging else {
            return Ok(());
        };
        merging.done.push(name);
        let mut field = self.out.split_off(start);
        close(&mut field, b'}');
        field.insert(0, b'{');
        if let Some(merged) = merge::merged(&field, name, theirs, merging.guarded)? {
            self.append(name, |out| write::write(out, merged))?;
        }
        Ok(())
    }

    fn append(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
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
        if let Some(extra) = self.extra {
            let done = self.merging.take().map(|merging| merging.done);
            let done = done.unwrap_or_default();
            for (name, value) in extra {
                if takes(value) && !done.contains(&name.as_str()) {
                    self.append(name, |out| write::write(out, value))?;
                }
            }
        }
        close(self.out, b'}');
        Ok(())
    }
}
