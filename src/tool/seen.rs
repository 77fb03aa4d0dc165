//! A tool call as a probe between two wrappers sees it.

use std::sync::Arc;

use serde_json::Value;

use crate::depth;
use crate::message::{Part, ToolCall};
use crate::stream::{FieldChange, is_same};

/// The part of a request that a tool sees. It shares everything.
pub(crate) struct SeenToolRequest {
    pub(super) call: ToolCall,
    /// `None` for those of the call.
    pub(super) arguments: Option<Arc<Value>>,
}

impl SeenToolRequest {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.call.name
    }

    fn arguments(&self) -> &Value {
        let changed = self.arguments.as_deref();
        changed.unwrap_or_else(|| self.call.arguments.value())
    }

    /// Adds the fields that a later request has changed.
    pub(crate) fn changes(&self, later: &Self, changes: &mut Vec<FieldChange>) {
        if self.call.name != later.call.name {
            let [before, after] = [self, later].map(|seen| Some(seen.call.name.len()));
            changes.push(FieldChange::new("name", before, after));
        }
        // Nothing is parsed for it where the text is the same.
        let is_same = self.arguments == later.arguments
            && self.call.arguments.as_str() == later.call.arguments.as_str();
        if !is_same && self.arguments() != later.arguments() {
            let [before, after] = [self, later].map(|seen| size(seen.arguments()));
            changes.push(FieldChange::new("arguments", before, after));
        }
    }

    /// Returns the text of a changed field, here and in a later request.
    pub(crate) fn texts(&self, later: &Self, field: &str) -> Option<[String; 2]> {
        match field {
            "arguments" => Some([text(self.arguments())?, text(later.arguments())?]),
            _ => None,
        }
    }
}

/// The content of a tool response. It shares everything.
pub(crate) struct SeenToolResponse {
    pub(super) value: Arc<Value>,
    pub(super) parts: Option<Arc<[Part]>>,
    pub(super) is_error: bool,
}

impl SeenToolResponse {
    pub(crate) fn changes(&self, later: &Self, changes: &mut Vec<FieldChange>) {
        let mut note = |field, before, after| changes.push(FieldChange::new(field, before, after));
        if self.value != later.value {
            note("value", size(&self.value), size(&later.value));
        }
        if !is_same(&self.parts, &later.parts) && self.parts != later.parts {
            let count = |seen: &Self| seen.parts.as_ref().map(|parts| parts.len());
            note("parts", count(self), count(later));
        }
        if self.is_error != later.is_error {
            note("is_error", None, None);
        }
    }

    pub(crate) fn texts(&self, later: &Self, field: &str) -> Option<[String; 2]> {
        match field {
            "value" => Some([text(&self.value)?, text(&later.value)?]),
            _ => None,
        }
    }
}

/// Returns the bytes of a value as JSON, unless it is too deep to be written.
fn size(value: &Value) -> Option<usize> {
    Some(json(value)?.len())
}

/// Returns a value that is a text, or another one as JSON.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        value => json(value),
    }
}

fn json(value: &Value) -> Option<String> {
    depth::check::<serde_json::Error>(value).ok()?;
    serde_json::to_string(value).ok()
}
