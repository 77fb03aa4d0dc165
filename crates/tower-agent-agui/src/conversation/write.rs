use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::keys::{FILE_NAME, FOREIGN, IS_ERROR};
use crate::wire::{self, Content, ContentPart, MediaPart, MessageKind, PartSource};
use tower_agent::message::{MediaSource, Message, Messages, Part, ProviderData, Role, ToolResult};

/// Converts our messages to the client's: see the [module](crate::conversation). Our messages have
/// no ids; `next_id` supplies them, in order.
///
/// ```
/// use tower_agent_agui::{self as agui, conversation};
/// use tower_agent::Message;
/// use tower_agent::message::Messages;
///
/// let history = Messages::from([Message::user("Hello")]);
/// let messages = conversation::write(&history, || "m1".into());
/// assert_eq!(messages, [agui::Message::user("m1", "Hello")]);
/// ```
pub fn write(messages: &Messages, mut next_id: impl FnMut() -> Arc<str>) -> Vec<wire::Message> {
    let mut written = Vec::new();
    for message in messages {
        match message.role() {
            Role::System => {
                let content = message.text();
                written.push(wire::Message::new(
                    next_id(),
                    MessageKind::System { content },
                ));
            }
            Role::User => {
                written.push(wire::Message::user(next_id(), content(message.parts())));
            }
            Role::Assistant => assistant(message, &mut next_id, &mut written),
            Role::Tool => {
                let results = message.tool_results();
                written.extend(results.map(|result| tool(next_id(), result)));
            }
            // The protocol has no role for kinds of message that are added later.
            _ => {}
        }
    }
    written
}

fn assistant(
    message: &Message,
    next_id: &mut impl FnMut() -> Arc<str>,
    written: &mut Vec<wire::Message>,
) {
    // The protocol has one text for each message, so all text parts are joined. Reasoning becomes
    // messages of its own, written before.
    let mut text = None::<String>;
    let mut tool_calls = Vec::new();
    for part in message.parts() {
        match part {
            Part::Text(part) => text.get_or_insert_default().push_str(&part.text),
            Part::Reasoning(thought) => {
                let kind = MessageKind::Reasoning {
                    content: thought.text.clone(),
                };
                let mut message = wire::Message::new(next_id(), kind);
                message.encrypted_value = encrypted(&thought.provider);
                written.push(message);
            }
            Part::ToolCall(call) => {
                let mut tool_call = wire::ToolCall::new(
                    call.id.clone(),
                    call.name.clone(),
                    call.arguments.as_str(),
                );
                tool_call.encrypted_value = encrypted(&call.provider);
                tool_calls.push(tool_call);
            }
            _ => {}
        }
    }
    if text.is_some() || !tool_calls.is_empty() {
        let kind = MessageKind::Assistant {
            content: text,
            tool_calls,
        };
        written.push(wire::Message::new(next_id(), kind));
    }
}

fn tool(id: Arc<str>, result: &ToolResult) -> wire::Message {
    let kind = MessageKind::Tool {
        tool_call_id: result.call_id.clone(),
        content: content(&result.parts),
        error: result.is_error.then(|| result.text()),
    };
    wire::Message::new(id, kind)
}

/// Returns text, if there is nothing else.
pub(crate) fn content(parts: &[Part]) -> Content {
    // `None` if any part is not text.
    let text: Option<String> = parts.iter().map(Part::as_text).collect();
    if let Some(text) = text {
        return text.into();
    }
    let parts: Vec<_> = parts.iter().filter_map(content_part).collect();
    parts.into()
}

/// Returns the content of a user's message, of which [`parts`](super::parts) makes the same parts.
pub(crate) fn content_by_part(parts: &[Part]) -> Content {
    match parts {
        [Part::Text(part)] => part.text.clone().into(),
        parts => parts
            .iter()
            .filter_map(content_part)
            .collect::<Vec<_>>()
            .into(),
    }
}

fn content_part(part: &Part) -> Option<ContentPart> {
    match part {
        Part::Text(text) => Some(ContentPart::text(&text.text)),
        Part::Image(image) => media(&image.source).map(ContentPart::Image),
        Part::Audio(audio) => media(&audio.source).map(ContentPart::Audio),
        Part::Document(document) => {
            let mut media = media(&document.source)?;
            // The protocol has no field for the name.
            media.metadata = document
                .name
                .as_ref()
                .map(|name| json!({ FILE_NAME: name }));
            Some(ContentPart::Document(media))
        }
        _ => None,
    }
}

fn media(source: &MediaSource) -> Option<MediaPart> {
    let source = match source.clone() {
        MediaSource::Url { url, media_type } => PartSource::Url {
            value: url,
            mime_type: media_type,
        },
        MediaSource::Base64 { media_type, data } => PartSource::Data {
            value: data,
            mime_type: media_type,
        },
        MediaSource::File { id, media_type } => PartSource::File {
            value: id,
            provider: None,
            mime_type: media_type,
        },
        _ => return None,
    };
    Some(MediaPart {
        source,
        id: None,
        metadata: None,
    })
}

/// Returns the metadata that marks a tool result as a failure: the event has no field for it, and
/// its metadata becomes the message's.
pub(crate) fn failure() -> Map<String, Value> {
    Map::from_iter([(IS_ERROR.to_owned(), Value::Bool(true))])
}

/// Returns the provider data that must be sent back, as text; data from other sources is unchanged.
pub(crate) fn encrypted(data: &ProviderData) -> Option<String> {
    if data.is_empty() {
        return None;
    }
    match data.get(FOREIGN) {
        // It came from another server, which expects its own text back.
        Some(Value::String(value)) => Some(value.clone()),
        _ => serde_json::to_string(data).ok(),
    }
}
