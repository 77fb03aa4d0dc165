//! Converts responses to results of MCP.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use tower_agent::message::MediaSource;
use tower_agent::{Part, ToolResponse};

/// Converts the response of an agent or a tool.
pub(super) fn result(response: &ToolResponse) -> CallToolResult {
    let content = response.parts().iter().map(block).collect();
    let mut result = if response.is_error() {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    // MCP allows only objects as structured content; other values are in the text.
    result.structured_content = response
        .value()
        .is_object()
        .then(|| response.value().clone());
    result
}

fn block(part: &Part) -> ContentBlock {
    let (kind, source, name) = match part {
        Part::Text(text) => return ContentBlock::text(text.text.clone()),
        Part::Image(image) => ("image", &image.source, None),
        Part::Audio(audio) => ("audio", &audio.source, None),
        Part::Document(document) => ("document", &document.source, document.name.as_deref()),
        // MCP has no block for other parts: their JSON loses nothing.
        other => return ContentBlock::text(serde_json::to_string(other).unwrap_or_default()),
    };
    match source {
        MediaSource::Base64 { media_type, data } => match kind {
            "image" => ContentBlock::image(data.clone(), media_type.clone()),
            "audio" => ContentBlock::audio(data.clone(), media_type.clone()),
            _ => {
                // A resource must have a URI. The name of a document may be one, when it came
                // from a resource of another server.
                let name = name.unwrap_or("document");
                let uri = if name.contains(':') {
                    name.to_owned()
                } else {
                    format!("file:///{name}")
                };
                let blob = ResourceContents::blob(data.clone(), uri);
                ContentBlock::resource(blob.with_mime_type(media_type.clone()))
            }
        },
        MediaSource::Url {
            url: uri,
            media_type,
        }
        | MediaSource::File {
            id: uri,
            media_type,
        } => {
            let mut link = Resource::new(uri.clone(), name.unwrap_or(kind));
            link.mime_type = media_type.clone();
            ContentBlock::resource_link(link)
        }
        other => ContentBlock::text(serde_json::to_string(other).unwrap_or_default()),
    }
}
