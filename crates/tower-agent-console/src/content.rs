//! The texts of calls as JSON, bounded: what is longer is cut, and says how long it was.

use std::io;

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Messages};
use tower_agent::stream::FieldChange;
use tower_agent::{Message, ModelRequest, Part, Role};

/// The maximum length of one text, in bytes.
const TEXT: usize = 64 << 10;

/// The maximum length of all texts of one side of a call, in bytes.
const SIDE: usize = 256 << 10;

/// The levels that a value may be nested: to write a deeper one could take more than the stack has.
const DEPTH: u32 = 128;

/// The room that is left for texts.
struct Room(usize);

impl Room {
    /// Returns as much of a text as there is room for.
    fn text(&mut self, text: &str) -> Value {
        self.cut(text, text.len())
    }

    /// The same for a text that was `len` bytes long, of which `text` is the beginning.
    fn cut(&mut self, text: &str, len: usize) -> Value {
        let kept = beginning(text, TEXT.min(self.0));
        self.0 -= kept.len();
        if kept.len() == len {
            return kept.into();
        }
        json!({ "text": kept, "length": len })
    }

    /// Returns the beginning of a value as JSON text.
    fn json(&mut self, value: &Value) -> Value {
        if !is_shallow(value, DEPTH) {
            return "nested too deeply to be kept".into();
        }
        let mut written = Beginning::default();
        // It is `Beginning` alone that could fail, and it does not.
        if serde_json::to_writer(&mut written, value).is_err() {
            return Value::Null;
        }
        let text = String::from_utf8_lossy(&written.bytes);
        // The last character may be cut in two.
        let text = text.trim_end_matches('\u{fffd}');
        self.cut(text, written.len)
    }

    fn message(&mut self, message: &Message) -> Value {
        let parts: Vec<_> = message.parts().iter().map(|part| self.part(part)).collect();
        json!({ "role": message.role(), "parts": parts })
    }

    fn part(&mut self, part: &Part) -> Value {
        match part {
            Part::Text(text) => json!({ "type": "text", "text": self.text(&text.text) }),
            Part::Reasoning(reasoning) => {
                json!({ "type": "reasoning", "text": self.text(&reasoning.text) })
            }
            Part::Image(image) => media("image", &image.source),
            Part::Audio(audio) => media("audio", &audio.source),
            Part::Document(document) => media("document", &document.source),
            Part::ToolCall(call) => json!({
                "type": "tool_call",
                "name": self.text(&call.name),
                "text": self.text(call.arguments.as_str()),
            }),
            Part::ToolResult(result) => json!({
                "type": "tool_result",
                "name": self.text(&result.name),
                "text": self.text(&result.text()),
            }),
            // A provider's own part is opaque, such as encrypted reasoning.
            _ => json!({ "type": "provider" }),
        }
    }
}

/// Returns the beginning of a text, of at most so many bytes.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let mut ends = (0..=most.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

fn is_shallow(value: &Value, levels: u32) -> bool {
    let Some(inside) = levels.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Array(items) => items.iter().all(|item| is_shallow(item, inside)),
        Value::Object(fields) => fields.values().all(|field| is_shallow(field, inside)),
        _ => true,
    }
}

/// Returns a part with media: neither its bytes nor where they are, which may be a signed URL.
fn media(kind: &str, source: &MediaSource) -> Value {
    json!({ "type": kind, "text": source.media_type() })
}

/// The beginning of what is written.
#[derive(Default)]
struct Beginning {
    bytes: Vec<u8>,
    len: usize,
}

impl io::Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = TEXT.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.len += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns what a model is sent: the instructions at the agent's first turn, and the messages since
/// the model's last one, as the others stand in the calls before.
pub(crate) fn of_request(request: &ModelRequest, is_first: bool) -> Box<str> {
    let mut room = Room(SIDE);
    let mut shown = json!({});
    if let (true, Some(instructions)) = (is_first, request.instructions()) {
        shown["instructions"] = room.text(instructions);
    }
    let messages = new_messages(request.messages(), is_first);
    shown["messages"] = messages.map(|message| room.message(message)).collect();
    shown.to_string().into()
}

/// Returns the messages since the model's last one, or all of them.
pub(crate) fn new_messages(messages: &Messages, is_first: bool) -> impl Iterator<Item = &Message> {
    let is_answer = |message: &Message| message.role() == Role::Assistant;
    let mut answers = messages.iter().enumerate().rev();
    let answer = answers.find(|(_, message)| is_answer(message));
    let start = answer.map_or(0, |(index, _)| index + 1);
    messages.range(if is_first { 0 } else { start })
}

/// Returns the memory that parts take, about, in bytes.
pub(crate) fn weight(parts: &[Part]) -> usize {
    let mut written = Beginning::default();
    // A value that cannot be written has been counted until there.
    drop(serde_json::to_writer(&mut written, parts));
    written.len
}

/// Returns the message that a model has answered with.
pub(crate) fn of_message(message: &Message) -> Box<str> {
    Room(SIDE).message(message).to_string().into()
}

/// Returns the arguments of a call, or the value of a result.
pub(crate) fn of_value(value: &Value) -> Box<str> {
    Room(SIDE).json(value).to_string().into()
}

/// Returns the texts that a wrapper changed: of each field before and afterwards. `None` for none.
pub(crate) fn of_changes(changes: &[FieldChange]) -> Option<Box<str>> {
    let mut room = Room(SIDE);
    let mut changed = Vec::new();
    for FieldChange { field, texts, .. } in changes {
        if let Some([before, after]) = texts {
            changed.push(json!({
                "field": field,
                "before": room.text(before),
                "after": room.text(after),
            }));
        }
    }
    (!changed.is_empty()).then(|| Value::from(changed).to_string().into())
}

/// Returns a text, such as that of an error.
pub(crate) fn of_text(text: &str) -> Box<str> {
    Room(SIDE).text(text).to_string().into()
}
