//! Compares what a consumer ends up with and the response.

use std::collections::BTreeMap;

use tower_agent::stream::{Event, EventKind};
use tower_agent::{Message, Role};

/// A response as text, reasoning and tool calls.
pub type Answer = (String, String, Vec<String>);

/// Returns the responses that a consumer ends up with, as text, reasoning and tool calls.
pub fn left<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<Answer> {
    let mut messages: Vec<std::sync::Arc<str>> = Vec::new();
    let mut seen = BTreeMap::<_, Answer>::new();
    let mut owner = BTreeMap::new();
    let mut places = BTreeMap::new();
    let mut open = Vec::new();
    let begin = |messages: &mut Vec<std::sync::Arc<str>>, message: &std::sync::Arc<str>| {
        if !messages.contains(message) {
            messages.push(message.clone());
        }
    };
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
            EventKind::ToolCallStart {
                id,
                name,
                message,
                call_id,
            } => {
                begin(&mut messages, message);
                open.push(id.clone());
                let calls = &mut seen.entry(message.clone()).or_default().2;
                owner.insert(id.clone(), message.clone());
                places.insert(id.clone(), calls.len());
                calls.push(format!("{call_id} {name} "));
            }
            EventKind::ToolCallDelta { id, json } => {
                assert!(open.contains(id), "arguments outside their call");
                let calls = &mut seen.entry(owner[id].clone()).or_default().2;
                calls[places[id]].push_str(json);
            }
            EventKind::AttemptDiscarded { message } | EventKind::ResponseReplaced { message } => {
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

pub fn said<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<Answer> {
    let answers = messages.filter(|message| message.role() == Role::Assistant);
    let answers = answers.map(|message| {
        let thoughts = message.parts().iter().filter_map(|part| match part {
            tower_agent::Part::Reasoning(reasoning) => Some(reasoning.text.as_str()),
            _ => None,
        });
        let call = |call: &tower_agent::message::ToolCall| {
            format!("{} {} {}", call.id, call.name, call.arguments)
        };
        (
            message.text(),
            thoughts.collect(),
            message.tool_calls().map(call).collect(),
        )
    });
    answers
        .filter(|answer: &Answer| *answer != Default::default())
        .collect()
}
