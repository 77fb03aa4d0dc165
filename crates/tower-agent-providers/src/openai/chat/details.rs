use serde_json::Value;

/// The `reasoning_details` of a message, or its `thinking_blocks`, which arrive in pieces and go
/// back in their order.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Value>);

impl From<Vec<Value>> for Details {
    fn from(details: Vec<Value>) -> Self {
        Self(details)
    }
}

impl Details {
    /// Adds a detail, or the next piece of the last one.
    pub(super) fn push(&mut self, detail: Value) {
        // Some servers fill a list with nothing.
        if !detail.is_object() {
            return;
        }
        let last = self.0.last_mut().filter(|last| is_piece(last, &detail));
        match last {
            Some(last) => append(last, detail),
            None => self.0.push(detail),
        }
    }

    /// Returns the list, unless it is empty.
    pub(super) fn into_value(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Array(self.0))
    }
}

/// Returns the text of a detail that can be read.
pub(super) fn thought(detail: &Value) -> &str {
    let text = detail["text"].as_str().or(detail["summary"].as_str());
    text.unwrap_or_default()
}

/// Returns whether `next` continues `last`. Encrypted reasoning comes whole.
fn is_piece(last: &Value, next: &Value) -> bool {
    if last["type"] == "thinking" && next["type"] == "thinking" {
        // The signature ends a block.
        return last["signature"].as_str().is_none_or(str::is_empty);
    }
    ["reasoning.text", "reasoning.summary"]
        .iter()
        .any(|kind| next["type"] == *kind)
        && last["type"] == next["type"]
        && last["index"] == next["index"]
}

fn append(detail: &mut Value, more: Value) {
    let (Value::Object(fields), Value::Object(more)) = (detail, more) else {
        return;
    };
    for (name, value) in more {
        match (fields.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(piece))
                if ["text", "summary", "thinking"].contains(&&*name) =>
            {
                text.push_str(&piece);
            }
            // The signature comes last, with a `null` for what was said before.
            (Some(_), Value::Null) => {}
            (_, value) => {
                fields.insert(name, value);
            }
        }
    }
}
