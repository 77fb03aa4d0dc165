//! Converts the results of a server's tools.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::Value;
use tower_agent::message::{Media, MediaSource};
use tower_agent::{Part, ToolResponse};

/// Returns a result whose blocks that cannot be read are text, their JSON. `None` if it is no
/// result.
pub(super) fn readable(mut result: Value) -> Option<CallToolResult> {
    let Value::Array(blocks) = result.get_mut("content")?.take() else {
        return None;
    };
    result["content"] = Value::Array(Vec::new());
    let mut result: CallToolResult = serde_json::from_value(result).ok()?;
    for block in blocks {
        let text = block.to_string();
        let block = serde_json::from_value(block);
        result
            .content
            .push(block.unwrap_or_else(|_| ContentBlock::text(text)));
    }
    Some(result)
}

/// Converts the result of a tool.
pub(super) fn response(result: CallToolResult) -> ToolResponse {
    let is_error = result.is_error.unwrap_or_default();
    let mut parts: Vec<Part> = result.content.into_iter().map(part).collect();
    let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    let value = match &result.structured_content {
        Some(structured) => structured.clone(),
        None => texts.join("\n").into(),
    };
    // Structured content is for programs. Servers say the same in the content, in words of their
    // own, and the model reads that; it would pay twice for both.
    let says_nothing = parts.len() == texts.len() && texts.iter().all(|text| text.is_empty());
    if let Some(structured) = &result.structured_content
        && says_nothing
    {
        parts = vec![Part::from(structured)];
    }
    let response = if is_error {
        error_response(value)
    } else {
        ToolResponse::new(value)
    };
    match &parts[..] {
        // The value alone is the same text: parts would only be a second copy.
        [] | [Part::Text(_)] if response.value().is_string() => response,
        _ => response.with_parts(parts),
    }
}

fn error_response(value: Value) -> ToolResponse {
    match value {
        Value::String(message) => ToolResponse::error(message),
        value => {
            let mut response = ToolResponse::error(String::new());
            *response.value_mut() = value;
            response
        }
    }
}

pub(super) fn part(content: ContentBlock) -> Part {
    match content {
        ContentBlock::Text(text) => Part::from_text(text.text),
        ContentBlock::Image(image) => Part::image(MediaSource::base64(image.mime_type, image.data)),
        ContentBlock::Audio(audio) => Part::audio(MediaSource::base64(audio.mime_type, audio.data)),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        // Its contents are not read: the model sees the address, and may have a tool to read it.
        ContentBlock::ResourceLink(link) => Part::from_text(link_text(&link)),
        // A kind of a later protocol version: the model can still read its JSON.
        other => Part::from(&serde_json::to_value(other).unwrap_or_default()),
    }
}

pub(super) fn resource(contents: ResourceContents) -> Part {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => Part::from_text(text),
        ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            ..
        } => {
            // Providers reject media without a type.
            let media_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            let kind = media_type.split('/').next().unwrap_or_default();
            match kind {
                "image" => Part::image(MediaSource::base64(media_type, blob)),
                "audio" => Part::audio(MediaSource::base64(media_type, blob)),
                _ => {
                    Part::document(Media::new(MediaSource::base64(media_type, blob)).with_name(uri))
                }
            }
        }
        other => Part::from(&serde_json::to_value(other).unwrap_or_default()),
    }
}

/// Returns a link as Markdown, with its type and description.
fn link_text(link: &Resource) -> String {
    let mut text = format!(
        "[{}]({})",
        link.title.as_ref().unwrap_or(&link.name),
        link.uri
    );
    if let Some(media_type) = &link.mime_type {
        text.push_str(&format!(" ({media_type})"));
    }
    if let Some(description) = &link.description {
        text.push_str(": ");
        text.push_str(description);
    }
    text
}
