use super::provider::{PROVIDER, added};
use crate::json::{self, Object, write};
use crate::protocol::{joined, tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{MediaSource, Part, ProviderData, ToolResult};

/// Returns whether a part belongs in what a message says, beside reasoning, calls and results.
pub(super) fn is_content(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.text.is_empty() || added(&text.provider).is_some(),
        Part::Provider(data) => data.get(PROVIDER).is_some(),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => false,
        // Unsupported parts are an error.
        _ => true,
    }
}

/// Writes a part of what somebody says.
pub(super) fn content(part: &Part, out: &mut Vec<u8>) -> Result<()> {
    match part {
        Part::Text(text) => {
            let mut json = Object::with_extra(out, added(&text.provider));
            json.field("type", "text")?;
            json.field("text", &text.text)?;
            json.end_with_nulls()
        }
        Part::Image(image) => media("image", &image.source, &image.provider, out),
        Part::Audio(audio) => media("audio", &audio.source, &audio.provider, out),
        Part::Document(document) => media("document", &document.source, &document.provider, out),
        Part::Provider(data) => write(out, data.get(PROVIDER)),
        _ => Err(unsupported("part of a message")),
    }
}

fn media(
    kind: &str,
    source: &MediaSource,
    provider: &ProviderData,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut json = Object::with_extra(out, added(provider));
    json.field("type", kind)?;
    json.optional("mime_type", source.media_type())?;
    match source {
        MediaSource::Base64 { data, .. } => json.field("data", data)?,
        MediaSource::Url { url, .. } => json.field("uri", url)?,
        MediaSource::File { id, .. } => json.field("uri", id)?,
        _ => return Err(unsupported("source of an image, of audio or of a document")),
    }
    json.end_with_nulls()
}

/// Writes a step: what the user or the model says.
pub(super) fn content_step<'a>(
    kind: &str,
    parts: impl IntoIterator<Item = &'a Part>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut json = Object::new(out);
    json.field("type", kind)?;
    json.field_with("content", |out| json::array(out, parts, content))?;
    json.end()
}

/// Returns whether a part is nothing but text.
fn is_plain(part: &Part) -> bool {
    matches!(part, Part::Text(text) if added(&text.provider).is_none())
}

/// Writes the step of a result. Its name is required, although the reference says otherwise.
pub(super) fn function_result(result: &ToolResult, out: &mut Vec<u8>) -> Result<()> {
    let parts = result.parts.iter().filter(|part| is_content(part));
    let mut json = Object::new(out);
    json.field("type", "function_result")?;
    json.field("call_id", &*result.call_id)?;
    json.field("name", tool_name(&result.name))?;
    // One text where it says everything; parts with media or data of their own stay apart.
    if parts.clone().all(is_plain) {
        json.field("result", joined(&result.parts, "\n"))?;
    } else {
        json.field_with("result", |out| json::array(out, parts, content))?;
    }
    json.optional("is_error", result.is_error.then_some(true))?;
    json.end()
}
