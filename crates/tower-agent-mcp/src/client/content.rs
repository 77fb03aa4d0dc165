//! Converts the results of a server's tools.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::Value;
use tower_agent::message::{Document, MediaSource};
use tower_agent::{Part, ToolResponse};

pub(super) fn response(result: CallToolResult) -> ToolResponse {
    let is_error = result.is_error.unwrap_or_default();
    let mut parts: Vec<Part> = result.content.into_iter().map(part).collect();
    let text: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    let value = match &result.structured_content {
        Some(structured) => structured.clone(),
        None => text.join("\n").into(),
    };
    // Most servers send structured content as text as well; the model reads it once.
    if let Some(structured) = &result.structured_content
        && !text
            .iter()
            .any(|text| serde_json::from_str::<Value>(text).is_ok_and(|it| it == *structured))
    {
        parts.push(Part::from(structured));
    }
    let response = match (is_error, value) {
        (false, value) => ToolResponse::new(value),
        (true, Value::String(message)) => ToolResponse::error(message),
        (true, value) => {
            let mut response = ToolResponse::error(String::new());
            *response.value_mut() = value;
            response
        }
    };
    match &parts[..] {
        [] | [Part::Text(_)] if response.value().is_string() => response,
        _ => response.with_parts(parts),
    }
}

pub(super) fn part(content: ContentBlock) -> Part {
    match content {
        ContentBlock::Text(text) => Part::from_text(text.text),
        ContentBlock::Image(image) => Part::image_base64(image.mime_type, image.data),
        ContentBlock::Audio(audio) => Part::audio_base64(audio.mime_type, audio.data),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        ContentBlock::ResourceLink(link) => Part::from_text(link_text(&link)),
        other => Part::from(&serde_json::to_value(other).unwrap_or_default()),
    }
}

fn resource(contents: ResourceContents) -> Part {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => Part::from_text(text),
        ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            ..
        } => {
            let media_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            let kind = media_type.split('/').next().unwrap_or_default();
            match kind {
                "image" => Part::image_base64(media_type, blob),
                "audio" => Part::audio_base64(media_type, blob),
                _ => Document::new(MediaSource::base64(media_type, blob))
                    .with_name(uri)
                    .into(),
            }
        }
        other => Part::from(&serde_json::to_value(other).unwrap_or_default()),
    }
}

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
