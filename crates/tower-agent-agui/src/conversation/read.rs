use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::keys::{FILE_NAME, FOREIGN, IS_ERROR};
use crate::wire::{self, Content, ContentPart, InputError, MediaPart, MessageKind, PartSource};
use tower_agent::message::{
    Audio, Document, Image, MediaSource, Message, Messages, Part, ProviderData, Role, ToolCall,
    ToolResult,
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
        let place = |field: &str| format!("messages[{index}].{field}");
        if message.subagent_run_id.is_some() {
            continue;
        }
        match &message.kind {
            MessageKind::Developer { content } | MessageKind::System { content } => {
                read.push(Message::system(content.clone()));
            }
            MessageKind::User { content } => {
                thoughts.clear();
                read.push(Message::new(Role::User, parts(content, place)?));
            }
            MessageKind::Reasoning { content } => {
                let mut part = Part::reasoning(content.clone());
                if let (Part::Reasoning(thought), Some(value)) =
                    (&mut part, &message.encrypted_value)
                {
                    thought.provider = provider_data(value);
                }
                // The ids show where our own reasoning messages belong: they were sent after the
                // first text.
                let own = last.filter(|(name, _)| is_thought_of(&message.id, name));
                match own.and_then(|(_, at)| read.get_mut(at)) {
                    Some(message) => message.parts_mut().push(part),
                    None => thoughts.push(part),
                }
            }
            MessageKind::Assistant {
                content,
                tool_calls,
            } => {
                let mut said = std::mem::take(&mut thoughts);
                said.extend(
                    content
                        .iter()
                        .filter(|text| !text.is_empty())
                        .map(Part::from_text),
                );
                for asked in tool_calls {
                    let function = &asked.function;
                    let (id, name) = (asked.id.clone(), function.name.clone());
                    let mut call = ToolCall::from_text(id, name, &*function.arguments);
                    if let Some(value) = &asked.encrypted_value {
                        call.provider = provider_data(value);
                    }
                    calls.insert(&asked.id, call.clone());
                    said.push(call.into());
                }
                last = Some((&message.id, read.len()));
                read.push(Message::new(Role::Assistant, said));
            }
            MessageKind::Tool { tool_call_id, .. } => {
                let call = calls.get(tool_call_id).ok_or_else(|| {
                    let why = format!("no earlier message contains the call `{tool_call_id}`");
                    InputError::new(place("toolCallId"), why)
                })?;
                let (said, is_failed) = tool_answer(message, place)?;
                let result = ToolResult::new(call, said);
                let result = if is_failed { result.failed() } else { result };
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
    let number = id
        .strip_prefix(message)
        .and_then(|rest| rest.strip_prefix("-r"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns the result of a tool and whether it failed, or nothing for other messages.
pub(crate) fn tool_answer(
    message: &wire::Message,
    place: impl Fn(&str) -> String,
) -> Result<(Vec<Part>, bool), InputError> {
    let MessageKind::Tool { content, error, .. } = &message.kind else {
        return Ok((Vec::new(), false));
    };
    let mut said = parts(content, place)?;
    let silent = said
        .iter()
        .all(|part| part.as_text().is_some_and(str::is_empty));
    if let (true, Some(error)) = (silent, error) {
        said = vec![Part::from_text(error)];
    }
    let told = message
        .metadata
        .as_ref()
        .and_then(|it| it.get(IS_ERROR)?.as_bool());
    Ok((said, error.is_some() || told == Some(true)))
}

pub(crate) fn parts(
    content: &Content,
    place: impl Fn(&str) -> String,
) -> Result<Vec<Part>, InputError> {
    let parts = match content {
        Content::Text(text) => return Ok(vec![Part::from_text(text)]),
        Content::Parts(parts) => parts,
    };
    let part = |(index, part): (usize, &ContentPart)| {
        let read = match part {
            ContentPart::Text(text) => Ok(Part::from_text(&text.text)),
            ContentPart::Image(image) => source(image).map(|it| Image::new(it).into()),
            ContentPart::Audio(audio) => source(audio).map(|it| Audio::new(it).into()),
            ContentPart::Document(document) => source(document).map(|it| {
                let mut read = Document::new(it);
                read.name = name(document);
                read.into()
            }),
            ContentPart::Video(_) => {
                Err("a model call cannot contain video; send text, an image, audio or a document")
            }
        };
        read.map_err(|why| InputError::new(place(&format!("content[{index}]")), why))
    };
    parts.iter().enumerate().map(part).collect()
}

/// A client must not choose among the files in the account that the server uses.
fn source(media: &MediaPart) -> Result<MediaSource, &'static str> {
    let (source, media_type) = match &media.source {
        PartSource::Data { value, mime_type } => return Ok(MediaSource::base64(mime_type, value)),
        PartSource::Url { value, mime_type } => (MediaSource::url(value), mime_type),
        PartSource::File { .. } => {
            return Err("a client cannot name a provider's file; send the data or a URL");
        }
    };
    Ok(match media_type {
        Some(media_type) => source.with_media_type(media_type),
        None => source,
    })
}

fn name(document: &MediaPart) -> Option<Arc<str>> {
    Some(document.metadata.as_ref()?.get(FILE_NAME)?.as_str()?.into())
}

/// Returns the data that [`write`](super::write) stored, or the value itself.
fn provider_data(value: &str) -> ProviderData {
    match serde_json::from_str::<BTreeMap<String, Value>>(value) {
        Ok(data) => data.into(),
        Err(_) => {
            let mut data = ProviderData::default();
            data.set(FOREIGN, value.into());
            data
        }
    }
}
