//! Content, in the form of the conventions' JSON schemas.

use opentelemetry::KeyValue;
use serde_json::{Value, json};
use tower_agent::message::MediaSource;
use tower_agent::model::ReasoningEffort;
use tower_agent::{Message, ModelRequest, ModelResponse, Part, Role};

use crate::names::attribute;

/// Returns instructions, messages and tools of a request.
pub(crate) fn input(request: &ModelRequest) -> Vec<KeyValue> {
    let messages: Vec<_> = request.messages().iter().map(message).collect();
    let mut attributes = vec![KeyValue::new(attribute::INPUT_MESSAGES, text(messages))];
    if let Some(instructions) = request.instructions() {
        let part = json!({ "type": "text", "content": instructions });
        attributes.push(KeyValue::new(
            attribute::SYSTEM_INSTRUCTIONS,
            text(vec![part]),
        ));
    }
    let tools = request.tools().iter().map(|tool| {
        json!({
            "type": "function",
            "name": tool.name(),
            "description": tool.description(),
            "parameters": tool.parameters(),
        })
    });
    let tools: Vec<_> = tools.collect();
    if !tools.is_empty() {
        attributes.push(KeyValue::new(attribute::TOOL_DEFINITIONS, text(tools)));
    }
    attributes
}

/// Returns the message of a response.
pub(crate) fn output(response: &ModelResponse) -> String {
    let mut said = message(response.message());
    // The conventions have deprecated it, but readers of older revisions drop a message without.
    said["finish_reason"] = response.finish_reason().to_string().into();
    text(vec![said])
}

fn text(list: Vec<Value>) -> String {
    Value::Array(list).to_string()
}

fn message(message: &Message) -> Value {
    let role = match message.role() {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "other",
    };
    let parts: Vec<_> = message.parts().iter().map(part).collect();
    json!({ "role": role, "parts": parts })
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(it) => json!({ "type": "text", "content": it.text }),
        Part::Reasoning(it) => json!({ "type": "reasoning", "content": it.text }),
        Part::Image(it) => media("image", &it.source),
        Part::Audio(it) => media("audio", &it.source),
        Part::Document(it) => media("document", &it.source),
        Part::ToolCall(it) => json!({
            "type": "tool_call",
            "id": &*it.id,
            "name": &*it.name,
            "arguments": it.arguments.value(),
        }),
        Part::ToolResult(it) => {
            let said: Value = match it.parts.iter().all(|part| part.as_text().is_some()) {
                true => it.text().into(),
                false => it.parts.iter().map(self::part).collect(),
            };
            json!({ "type": "tool_call_response", "id": &*it.call_id, "response": said })
        }
        // Only the provider knows what is in it.
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
