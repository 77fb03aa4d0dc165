//! Reads a thread that the server does not know: as text for the model, without any effects.

use std::collections::HashMap;
use std::fmt::Write;

use super::thread::{Entry, Speaker, Thread};
use crate::conversation;
use crate::wire::{InputError, Message, MessageKind, ToolCall};
use tower_agent::message::{self, Part, Role};

/// Reads the client's messages. Tool calls and results become notes for the model, in the user's
/// name.
pub(super) fn read(messages: &[Message], thread: &mut Thread) -> Result<(), InputError> {
    let mut calls: HashMap<&str, &ToolCall> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        if message.subagent_run_id.is_some() {
            continue;
        }
        let id = Some(message.id.clone());
        match &message.kind {
            MessageKind::Developer { .. } | MessageKind::System { .. } => {
                let words = with_id_of(message, thread, words(message, index)?);
                thread.push(Entry::new(id, Speaker::System, words));
            }
            MessageKind::User { .. } => {
                let words = with_id_of(message, thread, words(message, index)?);
                thread.push(Entry::new(id, Speaker::User, words));
            }
            MessageKind::Assistant {
                content,
                tool_calls,
            } => {
                let said = content.as_ref().filter(|text| !text.is_empty());
                let said = said.map(|text| {
                    with_id_of(message, thread, message::Message::assistant(text.clone()))
                });
                thread.push(Entry::new(id, Speaker::Assistant, said));
                calls.extend(tool_calls.iter().map(|call| (&*call.id, call)));
            }
            MessageKind::Tool { tool_call_id, .. } => {
                let call = calls.get(&**tool_call_id).ok_or_else(|| {
                    let why = format!("no earlier message contains the call `{tool_call_id}`");
                    InputError::new(format!("messages[{index}].toolCallId"), why)
                })?;
                let (parts, is_failed) = tool_answer(message, index)?;
                thread.push(Entry::new(id, Speaker::Tool, note(call, parts, is_failed)));
            }
            // The server cannot know that the model produced this reasoning.
            MessageKind::Reasoning { .. } => {
                thread.push(Entry::new(id, Speaker::Assistant, None));
            }
            MessageKind::Activity { .. } => {}
        }
    }
    Ok(())
}

fn note(call: &ToolCall, parts: Vec<Part>, is_failed: bool) -> message::Message {
    let mut text = String::from("Note, as reported by the client: ");
    let how = if is_failed { "failed with" } else { "answered" };
    let function = &call.function;
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "the tool `{}` was called earlier with `{}`, and {how}: ",
        function.name, function.arguments
    );
    let parts = std::iter::once(Part::from_text(text)).chain(parts);
    message::Message::new(Role::User, parts)
}

/// Gives a message the id that the client has chosen, unless it could be that of another message:
/// then it gets one that only the server knows.
pub(super) fn with_id_of(
    client: &Message,
    thread: &Thread,
    message: message::Message,
) -> message::Message {
    if client.id.is_empty() || thread.has_id(&client.id) {
        message
    } else {
        message.with_id(client.id.clone())
    }
}

/// Returns a message of the user or the application.
pub(super) fn words(message: &Message, index: usize) -> Result<message::Message, InputError> {
    match &message.kind {
        MessageKind::Developer { content } | MessageKind::System { content } => {
            Ok(message::Message::system(content.clone()))
        }
        MessageKind::User { content } => {
            let place = |field: &str| format!("messages[{index}].{field}");
            Ok(message::Message::new(
                Role::User,
                conversation::parts(content, place)?,
            ))
        }
        _ => {
            let why = "only the user and the application may add messages";
            Err(InputError::new(format!("messages[{index}].role"), why))
        }
    }
}

/// Returns the result of a tool, and whether it failed.
pub(super) fn tool_answer(
    message: &Message,
    index: usize,
) -> Result<(Vec<Part>, bool), InputError> {
    conversation::tool_answer(message, |field: &str| format!("messages[{index}].{field}"))
}
