//! A stored thread as its client has it.

use std::collections::HashMap;
use std::sync::Arc;

use tower_agent::message::{IdPart, Message, Part, Role, ToolCall, ToolResult};
use tower_agent_conversations::{RunProgress, ShownForm, ShownMessage};

use crate::conversation::{self, Conversation};
use crate::wire::{self, Content, MessageKind};

/// The key in the metadata of a message for the mark of the device that has received it.
const READER: &str = "reader";

/// Returns the form in which a client has a message of the transcript.
pub(super) fn form(
    shown: &Conversation,
    id: &str,
    message: &Message,
    progress: RunProgress,
) -> ShownForm {
    let messages = shown.messages();
    let is_inner = |message: &wire::Message| message.subagent_run_id.is_some();
    let own = shown.position(id);
    let is_thinking = has_thoughts(message);
    // Nearly always: nothing else belongs to it.
    if let Some(at) = own
        && !is_thinking
        && !messages[at.saturating_sub(1)..]
            .iter()
            .take(3)
            .any(is_inner)
        && is_whole(&messages[at], id, message)
    {
        return ShownForm::Whole;
    }
    let mut positions = Vec::new();
    if is_thinking {
        // As in the events that start the reasoning of a message.
        let thought = |number| format!("{id}{}", IdPart::Reasoning(number));
        let thoughts = (0..).map_while(|number| shown.position(&thought(number)));
        positions.extend(thoughts);
    }
    positions.extend(own);
    positions.sort_unstable();
    let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
        return ShownForm::Hidden;
    };
    if progress != RunProgress::Running {
        // No transcript has the messages of subagents, so they are stored with those beside them.
        let before = messages[..*first].iter().rev();
        let start = first - before.take_while(|message| is_inner(message)).count();
        let is_last = messages[last + 1..].iter().all(is_inner);
        let end = if is_last { messages.len() } else { last + 1 };
        let inner = (start..*first).chain(last + 1..end);
        positions.extend(inner.collect::<Vec<_>>());
        positions.sort_unstable();
    }
    if let [position] = positions[..]
        && own == Some(position)
        && is_whole(&messages[position], id, message)
    {
        return ShownForm::Whole;
    }
    let forms = positions.into_iter().map(|at| &messages[at]);
    ShownForm::Other(
        forms
            .filter_map(|form| serde_json::to_value(form).ok())
            .collect(),
    )
}

fn has_thoughts(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    parts.any(|part| matches!(part, Part::Reasoning(_)))
}

/// Returns whether a client's message is what [`whole`] returns.
fn is_whole(shown: &wire::Message, id: &str, message: &Message) -> bool {
    if shown.name.is_some() || shown.encrypted_value.is_some() || shown.subagent_run_id.is_some() {
        return false;
    }
    match (&shown.kind, message.role()) {
        (
            MessageKind::Assistant {
                content,
                tool_calls,
            },
            Role::Assistant,
        ) => {
            let mut calls = message.tool_calls().enumerate();
            let is_same = |call: &wire::ToolCall| {
                let sent = calls.next();
                sent.is_some_and(|(index, sent)| is_whole_call(call, id, index, sent))
            };
            shown.metadata.is_none()
                && is_text_of(content.as_deref().unwrap_or_default(), message.parts())
                && tool_calls.iter().all(is_same)
                && calls.next().is_none()
        }
        (
            MessageKind::Tool {
                tool_call_id,
                content: Content::Text(text),
                error: None,
            },
            Role::Tool,
        ) => {
            let mut results = message.tool_results();
            results.next().is_some_and(|result| {
                let mark = result.is_error.then(conversation::failure);
                let is_of_call = match IdPart::split(id) {
                    Some((of, IdPart::Result { call, .. })) => {
                        is_part(tool_call_id, of, IdPart::Call(call))
                    }
                    _ => false,
                };
                is_of_call && shown.metadata == mark && is_text_of(text, &result.parts)
            })
        }
        _ => false,
    }
}

fn is_whole_call(shown: &wire::ToolCall, message: &str, index: usize, call: &ToolCall) -> bool {
    is_part(&shown.id, message, IdPart::Call(index))
        && shown.function.name == call.name
        && shown.function.arguments == call.arguments.as_str()
        && shown.encrypted_value.is_none()
        && shown.metadata.is_none()
}

/// Returns whether an id is that of a part of the message.
fn is_part(id: &str, message: &str, part: IdPart) -> bool {
    IdPart::split(id) == Some((message, part))
}

/// Returns whether these parts are this text, besides calls.
fn is_text_of(text: &str, parts: &[Part]) -> bool {
    let mut text = text;
    for part in parts {
        match part {
            Part::ToolCall(_) => {}
            Part::Text(part) => match text.strip_prefix(&*part.text) {
                Some(next) => text = next,
                None => return false,
            },
            _ => return false,
        }
    }
    text.is_empty()
}

/// Returns the messages of a thread, each once.
pub(super) fn messages(shown: impl IntoIterator<Item = ShownMessage>) -> Vec<wire::Message> {
    let mut messages: Vec<wire::Message> = Vec::new();
    let mut positions: HashMap<Arc<str>, usize> = HashMap::new();
    for shown in shown {
        let forms = match shown {
            ShownMessage::Whole { id, message, call } => {
                whole(id, &message, call).into_iter().collect()
            }
            ShownMessage::Other(forms) => read(forms),
            _ => Vec::new(),
        };
        for message in forms {
            // A subagent that goes on in a later run adds to its earlier messages.
            match positions.get(&message.id) {
                Some(at) => messages[*at] = message,
                None => {
                    positions.insert(message.id.clone(), messages.len());
                    messages.push(message);
                }
            }
        }
    }
    messages
}

fn read(forms: Vec<serde_json::Value>) -> Vec<wire::Message> {
    let forms = forms.into_iter();
    forms
        .filter_map(|form| serde_json::from_value(form).ok())
        .collect()
}

/// Returns the client's form of a message that it has as it is.
fn whole(id: Arc<str>, message: &Message, call: Option<Arc<str>>) -> Option<wire::Message> {
    let kind = match message.role() {
        Role::System => MessageKind::System {
            content: message.text(),
        },
        Role::User => MessageKind::User {
            content: conversation::content_by_part(message.parts()),
        },
        Role::Assistant => {
            let mut calls = Vec::new();
            for (index, call) in message.tool_calls().enumerate() {
                let id = message.id()?.tool_call(index);
                let arguments = call.arguments.as_str();
                calls.push(wire::ToolCall::new(id, call.name.clone(), arguments));
            }
            let text = message.text();
            MessageKind::Assistant {
                content: (!text.is_empty()).then_some(text),
                tool_calls: calls,
            }
        }
        Role::Tool => return result(id, message.tool_results().next()?, call?),
        _ => return None,
    };
    Some(wire::Message::new(id, kind))
}

fn result(id: Arc<str>, result: &ToolResult, call: Arc<str>) -> Option<wire::Message> {
    let mut message = wire::Message::tool(id, call, conversation::content(&result.parts));
    message.metadata = result.is_error.then(conversation::failure);
    Some(message)
}

/// Marks messages as those of a device. It sends the mark back with its first message.
pub(super) fn mark(messages: &mut [wire::Message], reader: String) {
    // No model reads an activity, and clients do not send it back.
    let is_sent = |message: &&mut wire::Message| {
        !matches!(message.kind, MessageKind::Activity { .. }) && message.subagent_run_id.is_none()
    };
    if let Some(first) = messages.iter_mut().find(is_sent) {
        let metadata = first.metadata.get_or_insert_default();
        metadata.insert(READER.to_owned(), reader.into());
    }
}

/// Returns the mark of the device that has sent these messages.
pub(super) fn reader(messages: &[wire::Message]) -> Option<String> {
    messages.iter().find_map(|message| {
        let mark = message.metadata.as_ref()?.get(READER)?.as_str()?;
        Some(mark.to_owned())
    })
}
