use serde_json::{Map, Value};

use super::media::{AUDIO, ConverseMedia, DOCUMENTS, IMAGES, document_name};
use super::plain_text::write_text;
use super::provider::{CALL_IDS, PROVIDER, added};
use crate::json::{self, Object};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{Media, Part, Reasoning, Text, ToolCall, ToolResult};

type AddedFields<'a> = Option<&'a Map<String, Value>>;

/// Returns whether a part is sent: blank text is rejected, and data of other providers means
/// nothing here.
pub(super) fn is_sent(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.text.trim().is_empty(),
        // Some models reason without a signature.
        Part::Reasoning(reasoning) => reasoning.provider.get(PROVIDER).is_some(),
        Part::Provider(data) => added(data).is_some(),
        _ => true,
    }
}

/// Writes a part as a block.
pub(super) fn write(part: &Part, out: &mut Vec<u8>) -> Result<()> {
    match part {
        Part::Text(part) => text(part, out),
        Part::Reasoning(part) => reasoning(part, out),
        Part::Image(image) => {
            let media = ConverseMedia::new(&image.source, IMAGES)?;
            tagged("image", media, added(&image.provider), out)
        }
        Part::Document(part) => document(part, out),
        Part::Audio(audio) => {
            let media = ConverseMedia::new(&audio.source, AUDIO)?;
            tagged("audio", media, added(&audio.provider), out)
        }
        Part::ToolCall(call) => tool_use(call, out),
        Part::Provider(data) => json::write(out, added(data)),
        Part::ToolResult(_) => Err(unsupported("part of a result")),
        _ => Err(unsupported("part of a message")),
    }
}

/// Writes a block whose only field has the name of its kind.
fn block(
    kind: &str,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut json = Object::new(out);
    json.field_with(kind, write)?;
    json.end()
}

fn tagged(
    kind: &str,
    media: ConverseMedia<'_>,
    fields: AddedFields<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    block(kind, out, |out| {
        let mut json = Object::with_extra(out, fields);
        media.fields(&mut json)?;
        json.end_with_nulls()
    })
}

fn text(part: &Text, out: &mut Vec<u8>) -> Result<()> {
    let fields = added(&part.provider);
    if fields.is_some_and(|fields| fields.contains_key("citations")) {
        // A text with its sources is a block of another kind.
        return block("citationsContent", out, |out| {
            let mut json = Object::with_extra(out, fields);
            json.array("content", |items| write_text(&part.text, items))?;
            json.end_with_nulls()
        });
    }
    let mut json = Object::with_extra(out, fields);
    json.field("text", &*part.text)?;
    json.end_with_nulls()
}

fn reasoning(part: &Reasoning, out: &mut Vec<u8>) -> Result<()> {
    let fields = added(&part.provider);
    block("reasoningContent", out, |out| {
        // Reasoning that the provider hides has no text.
        if fields.is_some_and(|fields| fields.contains_key("redactedContent")) {
            return json::write(out, fields);
        }
        block("reasoningText", out, |out| {
            let mut json = Object::with_extra(out, fields);
            json.field("text", &*part.text)?;
            json.end_with_nulls()
        })
    })
}

fn document(part: &Media, out: &mut Vec<u8>) -> Result<()> {
    let media = ConverseMedia::new(&part.source, DOCUMENTS)?;
    let fields = added(&part.provider);
    block("document", out, |out| {
        let mut json = Object::with_extra(out, fields);
        media.fields(&mut json)?;
        let name = part.name.as_deref().unwrap_or_default();
        json.field("name", document_name(name))?;
        json.end_with_nulls()
    })
}

fn tool_use(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let fields = added(&call.provider);
    block("toolUse", out, |out| {
        let mut json = Object::with_extra(out, fields);
        json.field("toolUseId", CALL_IDS.of_call(call))?;
        json.field("name", tool_name(&call.name))?;
        json.field_with("input", |out| json::arguments(out, &call.arguments))?;
        json.end_with_nulls()
    })
}

/// Writes a result with the id that its call has.
pub(super) fn tool_result(result: &ToolResult, id: &str, out: &mut Vec<u8>) -> Result<()> {
    let mut parts = result.parts.iter().filter(|part| is_sent(part)).peekable();
    block("toolResult", out, |out| {
        let mut json = Object::new(out);
        json.field("toolUseId", id)?;
        if parts.peek().is_some() {
            json.field_with("content", |out| json::array(out, parts, write))?;
        } else {
            // A result without content is rejected.
            let text = if result.is_error {
                "The tool failed."
            } else {
                "The tool returned nothing."
            };
            json.array("content", |items| write_text(text, items))?;
        }
        if result.is_error {
            json.field("status", "error")?;
        }
        json.end()
    })
}
