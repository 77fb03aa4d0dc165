use std::fmt::Display;

use serde_json::{Map, Value};

use super::data::{at, invalid, with_breakpoint};
use super::media::BlockSource;
use super::provider::{CALL_IDS, PROVIDER, added};
use crate::json::{self, Object};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{Part, Reasoning, ToolCall, ToolResult};

/// Returns whether a part is sent: blank text is rejected, and data of other providers means
/// nothing here.
pub(super) fn is_sent(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.text.trim().is_empty(),
        // Reasoning of this provider may have no signature.
        Part::Reasoning(reasoning) => reasoning.provider.get(PROVIDER).is_some(),
        Part::Provider(data) => added(data).is_some(),
        _ => true,
    }
}

/// Writes a part as a block. An error names its `path`; `breakpoint` is that of the message, if
/// this is its last block.
pub(super) fn write(
    part: &Part,
    path: &dyn Display,
    breakpoint: Option<&Value>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let fields = match part {
        Part::Text(text) => added(&text.provider),
        Part::Reasoning(reasoning) => added(&reasoning.provider),
        Part::Image(image) => added(&image.provider),
        Part::Document(document) => added(&document.provider),
        Part::ToolCall(call) => added(&call.provider),
        Part::Provider(data) => added(data),
        _ => None,
    };
    let fields = with_breakpoint(fields, breakpoint);
    let fields = fields.as_deref();
    match part {
        Part::Text(part) => text(&part.text, fields, out),
        Part::Reasoning(reasoning) => thinking(reasoning, fields, out),
        Part::Image(image) => {
            let source = BlockSource::of_image(image).map_err(|error| at(path, error))?;
            let mut json = Object::with_extra(out, fields);
            json.field("type", "image")?;
            json.field("source", source)?;
            json.end_with_nulls()
        }
        Part::Document(document) => {
            let source = BlockSource::of_document(document).map_err(|error| at(path, error))?;
            let mut json = Object::with_extra(out, fields);
            json.field("type", "document")?;
            json.field("source", source)?;
            json.optional("title", document.name.as_deref())?;
            json.end_with_nulls()
        }
        Part::ToolCall(call) => tool_use(call, fields, out),
        Part::ToolResult(_) => Err(at(path, unsupported("part of a result"))),
        Part::Provider(_) => json::write(out, fields),
        Part::Audio(_) => Err(at(path, invalid("the protocol has no audio"))),
        _ => Err(at(path, unsupported("part of a message"))),
    }
}

pub(super) fn text(
    text: &str,
    fields: Option<&Map<String, Value>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut json = Object::with_extra(out, fields);
    json.field("type", "text")?;
    json.field("text", text)?;
    json.end_with_nulls()
}

fn thinking(
    reasoning: &Reasoning,
    fields: Option<&Map<String, Value>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut json = Object::with_extra(out, fields);
    // A block of another type, which is redacted, is all in its data.
    if !fields.is_some_and(|fields| fields.contains_key("type")) {
        json.field("type", "thinking")?;
        json.field("thinking", &*reasoning.text)?;
    }
    json.end_with_nulls()
}

fn tool_use(call: &ToolCall, fields: Option<&Map<String, Value>>, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, fields);
    json.field("type", "tool_use")?;
    json.field("id", CALL_IDS.of_call(call))?;
    json.field("name", tool_name(&call.name))?;
    json.field_with("input", |out| json::arguments(out, &call.arguments))?;
    json.end_with_nulls()
}

/// Writes a result with the id that its call has.
pub(super) fn tool_result(
    result: &ToolResult,
    id: &str,
    path: &dyn Display,
    breakpoint: Option<&Value>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let fields = with_breakpoint(None, breakpoint);
    let mut parts = result
        .parts
        .iter()
        .enumerate()
        .filter(|(_, part)| is_sent(part))
        .peekable();
    let mut json = Object::with_extra(out, fields.as_deref());
    json.field("type", "tool_result")?;
    json.field("tool_use_id", id)?;
    if parts.peek().is_some() {
        json.field_with("content", |out| {
            json::array(out, parts, |(number, part), out| {
                write(part, &format_args!("{path}.parts[{number}]"), None, out)
            })
        })?;
    } else if result.is_error {
        // A failure without content is rejected.
        json.field("content", "The tool failed.")?;
    }
    if result.is_error {
        json.field("is_error", true)?;
    }
    json.end_with_nulls()
}
