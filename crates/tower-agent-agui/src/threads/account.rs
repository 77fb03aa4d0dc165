//! What the front end tells of a thread that the server does not know: words, and nothing that was
//! done.

use std::collections::HashMap;
use std::fmt::Write;

use super::thread::{Entry, Speaker, Thread};
use crate::conversation;
use crate::wire::{InputError, Message, MessageKind, ToolCall};
use tower_agent::message::{self, Part, Role};

/// Notes what is told. Tool calls and their answers become notes for the model to read, said by
/// the user's side.
pub(super) fn read(messages: &[Message], thread: &mut Thread) -> Result<(), InputError> {
    let mut calls: HashMap<&str, &ToolCall> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        if message.subagent_run_id.is_some() {
            continue;
        }
        let id = Some(message.id.clone());
        match &message.kind {
            MessageKind::Developer { .. } | MessageKind::System { .. } => {
                thread.push(Entry::new(id, Speaker::System, words(message, index)?));
            }
            MessageKind::User { .. } => {
                thread.push(Entry::new(id, Speaker::User, words(message, index)?));
            }
            MessageKind::Assistant { content, tool_calls } => {
                let said = content.as_ref().filter(|text| !text.is_empty());
                let said = said.map(message::Message::assistant);
                thread.push(Entry::new(id, Speaker::Assistant, said));
                calls.extend(tool_calls.iter().map(|call| (&*call.id, call)));
            }
            MessageKind::Tool { tool_call_id, .. } => {
                let call = calls.get(&**tool_call_id).ok_or_else(|| {
                    let why = format!("no message before asks for the call `{tool_call_id}`");
                    InputError::new(format!("messages[{index}].toolCallId"), why)
                })?;
                let (parts, is_failed) = tool_answer(message, index)?;
                thread.push(Entry::new(id, Speaker::Tool, note(call, parts, is_failed)));
            }
            // The model did not think this, as far as the server knows.
            MessageKind::Reasoning { .. } => {
                thread.push(Entry::new(id, Speaker::Assistant, None));
            }
            MessageKind::Activity { .. } => {}
        }
    }
    Ok(())
}

fn note(call: &ToolCall, parts: Vec<Part>, is_failed: bool) -> message::Message {
    let mut text = String::from("For the record, as the front end tells it: ");
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

/// What the user or the application says.
pub(super) fn words(message: &Message, index: usize) -> Result<message::Message, InputError> {
    match &message.kind {
        MessageKind::Developer { content } | MessageKind::System { content } => {
            Ok(message::Message::system(content.clone()))
        }
        MessageKind::User { content } => {
            let place = |field: &str| format!("messages[{index}].{field}");
            Ok(message::Message::new(Role::User, conversation::parts(content, place)?))
        }
        _ => {
            let why = "only the user and the application say something new";
            Err(InputError::new(format!("messages[{index}].role"), why))
        }
    }
}

/// What a tool has answered, and whether it has failed.
pub(super) fn tool_answer(
    message: &Message,
    index: usize,
) -> Result<(Vec<Part>, bool), InputError> {
    conversation::tool_answer(message, |field: &str| format!("messages[{index}].{field}"))
}
