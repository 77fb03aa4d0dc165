use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::keys::{FILE_NAME, FOREIGN, IS_ERROR};
use crate::wire::{self, Content, ContentPart, InputError, MediaPart, MessageKind, PartSource};
use tower_agent::message::{
    IdPart, Media, MediaSource, Message, Messages, Part, ProviderData, Role, ToolCall, ToolResult,
};

/// Reads the client's messages as a conversation, including tool calls and results. Nothing proves
/// that a model or a tool produced them, and an agent that runs the conversation runs its open
/// calls. A [server](crate::AgUi) does not accept them: see [trust](crate#trust).
///
/// The mapping is described in the [module](crate::conversation).
///
/// ```
/// use tower_agent_agui::{Message, conversation};
///
/// let history = conversation::read(&[Message::user("m1", "Hello")])?;
/// assert_eq!(history[0].text(), "Hello");
/// # Ok::<_, tower_agent_agui::InputError>(())
/// ```
///
/// # Errors
///
/// Fails if a message has a part that a model call cannot contain, or is a result for a call that
/// no earlier message contains.
pub fn read(messages: &[wire::Message]) -> Result<Messages, InputError> {
    let mut read = Messages::new();
    let mut thoughts: Vec<Part> = Vec::new();
    let mut calls: HashMap<&Arc<str>, ToolCall> = HashMap::new();
    // The id and index of the last assistant message.
    let mut last: Option<(&str, usize)> = None;
    for (index, message) in messages.iter().enumerate() {
        let path = |field: &str| format!("messages[{index}].{field}");
        // A subagent's conversation is its own: its agent keeps it.
        if message.subagent_run_id.is_some() {
            continue;
        }
        match &message.kind {
            MessageKind::Developer { content } | MessageKind::System { content } => {
                read.push(Message::system(content.clone()));
            }
            MessageKind::User { content } => {
                // Reasoning belongs to an assistant message, and none followed it in this turn.
                thoughts.clear();
                read.push(Message::new(Role::User, parts(content, path)?));
            }
            MessageKind::Reasoning { content } => {
                let mut part = Part::reasoning(content.clone());
                if let Part::Reasoning(thought) = &mut part
                    && let Some(value) = &message.encrypted_value
                {
                    thought.provider = provider_data(value);
                }
                // The ids show where our own reasoning messages belong: they were sent after the
                // first text.
                let parent = last.filter(|(id, _)| is_thought_of(&message.id, id));
                match parent.and_then(|(_, index)| read.get_mut(index)) {
                    Some(message) => message.parts_mut().push(part),
                    None => thoughts.push(part),
                }
            }
            MessageKind::Assistant {
                content,
                tool_calls,
            } => {
                let mut parts = std::mem::take(&mut thoughts);
                // Clients write an empty text for a message that has only calls; providers reject
                // it.
                if let Some(text) = content
                    && !text.is_empty()
                {
                    parts.push(Part::from_text(text));
                }
                for tool_call in tool_calls {
                    let function = &tool_call.function;
                    let mut call = ToolCall::from_text(
                        tool_call.id.clone(),
                        function.name.clone(),
                        &*function.arguments,
                    );
                    if let Some(value) = &tool_call.encrypted_value {
                        call.provider = provider_data(value);
                    }
                    // Models may use an id again: a result belongs to the latest call before it.
                    calls.insert(&tool_call.id, call.clone());
                    parts.push(call.into());
                }
                last = Some((&message.id, read.len()));
                read.push(Message::new(Role::Assistant, parts));
            }
            MessageKind::Tool {
                tool_call_id,
                content,
                error,
            } => {
                let call = calls.get(tool_call_id).ok_or_else(|| {
                    let why = format!("no earlier message contains the call `{tool_call_id}`");
                    InputError::new(path("toolCallId"), why)
                })?;
                let parts = result_parts(content, error.as_deref(), path)?;
                let mut result = ToolResult::new(call, parts);
                if is_failed(message) {
                    result = result.failed();
                }
                read.push(Message::tool(result));
            }
            MessageKind::Activity { .. } => {}
        }
    }
    Ok(read)
}

/// Returns whether the id is that of a message's reasoning, as in
/// [`ReasoningStart`](tower_agent::stream::EventKind::ReasoningStart).
fn is_thought_of(id: &str, message: &str) -> bool {
    matches!(IdPart::split(id), Some((of, IdPart::Reasoning(_))) if of == message)
}

/// Converts the content of a tool's result, which may have failed with an error.
pub(crate) fn result_parts(
    content: &Content,
    error: Option<&str>,
    path: impl Fn(&str) -> String,
) -> Result<Vec<Part>, InputError> {
    let parts = parts(content, path)?;
    let is_empty = parts
        .iter()
        .all(|part| part.as_text().is_some_and(str::is_empty));
    match error {
        // A model must not read an empty result where the client explains the failure.
        Some(error) if is_empty => Ok(vec![Part::from_text(error)]),
        _ => Ok(parts),
    }
}

/// Returns whether a message is the result of a tool that failed.
pub(crate) fn is_failed(message: &wire::Message) -> bool {
    let MessageKind::Tool { error, .. } = &message.kind else {
        return false;
    };
    // The result that the server sent has no `error` field, only the mark in its metadata.
    let is_marked = message
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.get(IS_ERROR)?.as_bool())
        .unwrap_or(false);
    error.is_some() || is_marked
}

/// Converts a message's content; `path` names a field of the message in an error.
pub(crate) fn parts(
    content: &Content,
    path: impl Fn(&str) -> String,
) -> Result<Vec<Part>, InputError> {
    let parts = match content {
        Content::Text(text) => return Ok(vec![Part::from_text(text)]),
        Content::Parts(parts) => parts,
    };
    let mut read = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let part = content_part(part)
            .map_err(|why| InputError::new(path(&format!("content[{index}]")), why))?;
        read.push(part);
    }
    Ok(read)
}

/// Converts one part; fails if a model call cannot contain it.
fn content_part(part: &ContentPart) -> Result<Part, &'static str> {
    match part {
        ContentPart::Text(text) => Ok(Part::from_text(&text.text)),
        ContentPart::Image(image) => Ok(Part::image(source(image)?)),
        ContentPart::Audio(audio) => Ok(Part::audio(source(audio)?)),
        ContentPart::Document(media) => {
            let mut document = Media::new(source(media)?);
            document.name = name(media);
            Ok(Part::document(document))
        }
        ContentPart::Video(_) => {
            Err("a model call cannot contain video; send text, an image, audio or a document")
        }
    }
}

/// Converts the source of a medium.
fn source(media: &MediaPart) -> Result<MediaSource, &'static str> {
    let (source, media_type) = match &media.source {
        PartSource::Data { value, mime_type } => return Ok(MediaSource::base64(mime_type, value)),
        PartSource::Url { value, mime_type } => (MediaSource::url(value), mime_type),
        // A client must not choose among the files in the account that the server uses.
        PartSource::File { .. } => {
            return Err(
                "a client cannot name a provider's file; send the data, or a public `https` URL",
            );
        }
    };
    Ok(match media_type {
        Some(media_type) => source.with_media_type(media_type),
        None => source,
    })
}

/// Returns the name of a document.
fn name(document: &MediaPart) -> Option<Arc<str>> {
    Some(document.metadata.as_ref()?.get(FILE_NAME)?.as_str()?.into())
}

/// Returns the data that [`write`](super::write) stored, or the value itself.
fn provider_data(value: &str) -> ProviderData {
    match serde_json::from_str::<BTreeMap<String, Value>>(value) {
        Ok(data) => data.into(),
        // Another server wrote it. It goes back to the client unchanged, and no provider of ours
        // reads it.
        Err(_) => {
            let mut data = ProviderData::default();
            data.set(FOREIGN, value.into());
            data
        }
    }
}
