//! Compares what a consumer ends up with and the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use tower_agent::stream::{Event, EventKind};
use tower_agent::{Message, Part, Role};

/// A response as text, reasoning and tool calls.
pub type Answer = (String, String, Vec<String>);

/// Returns the responses that a consumer ends up with, as text, reasoning and tool calls.
pub fn left<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<Answer> {
    let mut messages: Vec<Arc<str>> = Vec::new();
    let mut seen = BTreeMap::<_, Answer>::new();
    let mut owner = BTreeMap::new();
    let mut indices = BTreeMap::new();
    let mut open = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::TextStart { message } => {
                begin(&mut messages, message);
                open.push(message.clone());
            }
            EventKind::TextDelta { message, text } => {
                assert!(open.contains(message), "text outside its message");
                seen.entry(message.clone()).or_default().0.push_str(text);
            }
            EventKind::TextEnd { message: id }
            | EventKind::ReasoningEnd { id }
            | EventKind::ToolCallEnd { id } => {
                let at = open
                    .iter()
                    .position(|open| open == id)
                    .expect("what ends has begun");
                open.remove(at);
            }
            EventKind::ReasoningStart { id, message } => {
                begin(&mut messages, message);
                open.push(id.clone());
                owner.insert(id.clone(), message.clone());
            }
            EventKind::ReasoningDelta { id, text } => {
                assert!(open.contains(id), "a thought outside its train");
                seen.entry(owner[id].clone()).or_default().1.push_str(text);
            }
            EventKind::ToolCallStart(call) => {
                begin(&mut messages, &call.message);
                open.push(call.id.clone());
                let calls = &mut seen.entry(call.message.clone()).or_default().2;
                owner.insert(call.id.clone(), call.message.clone());
                indices.insert(call.id.clone(), calls.len());
                calls.push(format!("{} {} ", call.call_id, call.name));
            }
            EventKind::ToolCallDelta { id, json } => {
                assert!(open.contains(id), "arguments outside their call");
                let calls = &mut seen.entry(owner[id].clone()).or_default().2;
                calls[indices[id]].push_str(json);
            }
            EventKind::AttemptDiscarded { message, .. }
            | EventKind::ResponseReplaced { message } => {
                assert!(
                    messages.contains(message),
                    "what is taken back was seen, and once"
                );
                messages.retain(|other| other != message);
            }
            _ => {}
        }
    }
    assert_eq!(open, [], "everything ends");
    messages
        .iter()
        .filter_map(|message| seen.get(message).cloned())
        .collect()
}

/// Adds a message that begins with this part.
fn begin(messages: &mut Vec<Arc<str>>, message: &Arc<str>) {
    if !messages.contains(message) {
        messages.push(message.clone());
    }
}

/// Returns the responses in these messages, as text, reasoning and tool calls.
pub fn said<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for message in messages.filter(|message| message.role() == Role::Assistant) {
        let mut thoughts = String::new();
        for part in message.parts() {
            if let Part::Reasoning(reasoning) = part {
                thoughts.push_str(&reasoning.text);
            }
        }
        let calls = message
            .tool_calls()
            .map(|call| format!("{} {} {}", call.id, call.name, call.arguments))
            .collect();
        let answer: Answer = (message.text(), thoughts, calls);
        // An empty response emits no events, so that a consumer has no message for it.
        if answer != Answer::default() {
            answers.push(answer);
        }
    }
    answers
}
