use std::io;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use tower_agent::RunContext;
use tower_agent::context::Names;
use tower_agent::error::Result;

/// The hash of everything that a response depends on.
pub(super) type CacheKey = [u8; 32];

/// Everything that a response depends on.
#[derive(Debug)]
pub struct Identity<'a> {
    hash: Sha256,
    found: FoundNames<'a>,
}

/// The key of a call, with the names of its conversation in the request.
#[derive(Clone)]
pub(super) struct CallKey {
    pub(super) key: CacheKey,
    names: Names,
}

impl<'a> Identity<'a> {
    pub(super) fn new(context: &'a RunContext) -> Self {
        Self {
            hash: Sha256::default(),
            found: FoundNames::new(context),
        }
    }

    /// Adds a value as JSON, whose texts have an end: none can continue into the next.
    pub(super) fn add(&mut self, value: &(impl Serialize + ?Sized)) -> Result<()> {
        serde_json::to_writer(&mut *self, value)?;
        self.found.look(value)
    }

    /// A name means something else in another conversation, and is part of the key with what it
    /// means in this one.
    pub(super) fn into_key(mut self) -> Result<CallKey> {
        let names = std::mem::take(&mut self.found.names);
        serde_json::to_writer(&mut self, &names)?;
        let key = self.hash.finalize().into();
        Ok(CallKey { key, names })
    }

    /// Returns the names in what was added.
    pub(super) fn into_names(self) -> FoundNames<'a> {
        self.found
    }
}

impl io::Write for Identity<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CallKey {
    /// Returns whether what was found says the same wherever a call has this key: its names are
    /// those of the request, which mean the same there.
    pub(super) fn covers(&self, found: &FoundNames<'_>) -> bool {
        let mut names = found.names.iter();
        names.all(|(name, meaning)| self.names.get(name) == Some(meaning))
    }
}

/// The names of a conversation that were found in values.
#[derive(Debug)]
pub struct FoundNames<'a> {
    /// `None` if no part of the run has declared any.
    context: Option<&'a RunContext>,
    names: Names,
}

impl<'a> FoundNames<'a> {
    pub(super) fn new(context: &'a RunContext) -> Self {
        Self {
            context: (!context.names().is_empty()).then_some(context),
            names: Names::new(),
        }
    }

    /// Looks at every text and every key in a value.
    pub(super) fn look(&mut self, value: &(impl Serialize + ?Sized)) -> Result<()> {
        if self.context.is_some() {
            self.look_at(&serde_json::to_value(value)?);
        }
        Ok(())
    }

    fn look_at(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.look_at_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.look_at(item)),
            Value::Object(entries) => {
                for (key, item) in entries {
                    self.look_at_text(key);
                    self.look_at(item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn look_at_text(&mut self, text: &str) {
        let Some(context) = self.context else { return };
        self.names.extend(context.names().in_text(text));
        // The arguments of a call are a text of JSON, in which a name can be escaped.
        if text.trim_start().starts_with(['{', '[', '"'])
            && let Ok(inside) = serde_json::from_str(text)
        {
            self.look_at(&inside);
        }
    }
}
