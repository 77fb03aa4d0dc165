//! A tool call as a probe between two wrappers sees it.

use std::sync::Arc;

use serde_json::Value;

use crate::depth;
use crate::message::{Part, ToolCall};
use crate::stream::{FieldChanges, is_same};

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
    pub(crate) fn changes(&self, later: &Self, changes: &mut FieldChanges) {
        if self.call.name != later.call.name {
            let sizes = [self, later].map(|seen| Some(seen.call.name.len()));
            changes.add_sized("name", sizes);
        }
        // Nothing is parsed for it where the text is the same.
        let is_same = self.arguments == later.arguments
            && self.call.arguments.as_str() == later.call.arguments.as_str();
        if !is_same && self.arguments() != later.arguments() {
            note_value("arguments", self.arguments(), later.arguments(), changes);
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
    pub(crate) fn changes(&self, later: &Self, changes: &mut FieldChanges) {
        if self.value != later.value {
            note_value("value", &self.value, &later.value, changes);
        }
        if !is_same(&self.parts, &later.parts) && self.parts != later.parts {
            let count = |seen: &Self| seen.parts.as_ref().map(|parts| parts.len());
            changes.add_sized("parts", [self, later].map(count));
        }
        if self.is_error != later.is_error {
            changes.add("is_error");
        }
    }
}

fn note_value(field: &'static str, earlier: &Value, later: &Value, changes: &mut FieldChanges) {
    let texts = || Some([text(earlier)?, text(later)?]);
    changes.add_text(field, [earlier, later].map(size), texts);
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
