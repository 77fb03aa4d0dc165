//! Content, in the form of the conventions' JSON schemas.

use opentelemetry::KeyValue;
use serde_json::{Value, json};
use tower_agent::message::MediaSource;
use tower_agent::model::ReasoningEffort;
use tower_agent::{Message, ModelRequest, ModelResponse, Part};

use crate::names::attribute;

/// Returns instructions, messages and tools of a request.
pub(crate) fn input(request: &ModelRequest) -> Vec<KeyValue> {
    let messages = messages(request.messages());
    let mut attributes = vec![KeyValue::new(attribute::INPUT_MESSAGES, messages)];
    if let Some(instructions) = request.instructions() {
        let part = json!({ "type": "text", "content": instructions });
        attributes.push(KeyValue::new(
            attribute::SYSTEM_INSTRUCTIONS,
            text(vec![part]),
        ));
    }
    let mut tools = Vec::new();
    for tool in request.tools() {
        tools.push(json!({
            "type": "function",
            "name": tool.name(),
            "description": tool.description(),
            "parameters": tool.parameters(),
        }));
    }
    if !tools.is_empty() {
        attributes.push(KeyValue::new(attribute::TOOL_DEFINITIONS, text(tools)));
    }
    attributes
}

/// Returns the message of a response.
pub(crate) fn output(response: &ModelResponse) -> String {
    let mut output = message(response.message());
    // The conventions have deprecated it, but readers of older revisions drop a message without.
    output["finish_reason"] = response.finish_reason().to_string().into();
    text(vec![output])
}

/// Returns messages as the conventions write them.
pub(crate) fn messages<'a>(list: impl IntoIterator<Item = &'a Message>) -> String {
    text(list.into_iter().map(message).collect())
}

fn text(list: Vec<Value>) -> String {
    Value::Array(list).to_string()
}

fn message(message: &Message) -> Value {
    let parts: Vec<_> = message.parts().iter().map(part).collect();
    json!({ "role": message.role(), "parts": parts })
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "content": text.text }),
        Part::Reasoning(reasoning) => json!({ "type": "reasoning", "content": reasoning.text }),
        Part::Image(image) => media("image", &image.source),
        Part::Audio(audio) => media("audio", &audio.source),
        Part::Document(document) => media("document", &document.source),
        Part::ToolCall(call) => json!({
            "type": "tool_call",
            "id": &*call.id,
            "name": &*call.name,
            "arguments": call.arguments.value(),
        }),
        Part::ToolResult(result) => {
            // The schema allows any value, and text alone is easiest to read as a string.
            let is_text = result.parts.iter().all(|part| part.as_text().is_some());
            let response: Value = if is_text {
                result.text().into()
            } else {
                result.parts.iter().map(self::part).collect()
            };
            json!({ "type": "tool_call_response", "id": &*result.call_id, "response": response })
        }
        // A provider's own part is opaque and may be large, such as encrypted reasoning.
        _ => json!({ "type": "provider" }),
    }
}

/// Returns a part with media. Bytes that were sent inline are left out.
fn media(modality: &str, source: &MediaSource) -> Value {
    let mime_type = source.media_type();
    match source {
        MediaSource::Url { url, .. } => {
            json!({ "type": "uri", "modality": modality, "mime_type": mime_type, "uri": url })
        }
        MediaSource::File { id, .. } => {
            json!({ "type": "file", "modality": modality, "mime_type": mime_type, "file_id": id })
        }
        // The schema requires `content`, and bytes would make spans too large to export.
        _ => json!({ "type": "blob", "modality": modality, "mime_type": mime_type, "content": "" }),
    }
}

pub(crate) fn reasoning_level(effort: &ReasoningEffort) -> String {
    match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Other(word) => word,
        _ => "other",
    }
    .to_owned()
}
