//! The tool by which a model looks at what was left out.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use tower_agent::message::{Message, Messages, Part, ToolResult};
use tower_agent::model::ModelRequest;
use tower_agent::tool::{Tool, ToolResponse};

use super::rendered::rendered;
use crate::flow::short_name;
use crate::own_tool::{LOOK_BACK, look_back_declaration, own_tool};

/// The arguments of the tool.
#[derive(Deserialize)]
struct LookBack {
    name: String,
}

/// Returns the tool.
///
/// Its result in the transcript has no content: the model's request is given it each time, so that
/// the conversation does not have everything twice, and so that the content keeps its own label.
pub(super) fn tool() -> Tool {
    own_tool(look_back_declaration(), |LookBack { name }, _| {
        ToolResponse::new(format!("`{name}` is shown to the model."))
    })
}

/// A result of the tool, with the message that it shows.
pub(super) struct Shown {
    /// The message with the result, as it is in the conversation.
    pub(super) result: Message,
    /// The messages that it shows.
    pub(super) sources: Vec<Message>,
    /// The message with the result, as the model reads it.
    pub(super) shown: Message,
}

/// Returns whether the model of a request has the tool.
pub(super) fn is_offered(request: &ModelRequest) -> bool {
    request.tools().iter().any(|tool| tool.name() == LOOK_BACK)
}

/// Puts what the tool was asked for into its results.
pub(super) fn show(messages: &mut Messages) -> Vec<Shown> {
    let mut all = Vec::new();
    for at in 0..messages.len() {
        let has_result = |message: &Message| {
            let mut results = message.tool_results();
            results.any(|result| &*result.name == LOOK_BACK && !result.is_error)
        };
        if !has_result(&messages[at]) {
            continue;
        }
        // The names are in the calls: a result has no content of its own.
        let names = asked_names(messages, at);
        let result = messages[at].clone();
        let mut shown = result.clone();
        let mut sources = Vec::new();
        for part in shown.parts_mut() {
            if let Part::ToolResult(result) = part
                && let Some(name) = names.get(&result.call_id)
            {
                let found = find(messages, at, name);
                fill(result, name, &found);
                sources.extend(found);
            }
        }
        if let Some(message) = messages.get_mut(at) {
            *message = shown.clone();
        }
        all.push(Shown {
            result,
            sources,
            shown,
        });
    }
    all
}

/// Returns the names that the calls asked for whose results begin or end at this place, by their
/// ids.
fn asked_names(messages: &Messages, at: usize) -> HashMap<Arc<str>, String> {
    let mut before = (0..at).rev().map(|place| &messages[place]);
    let calling = before.find(|message| message.tool_calls().next().is_some());
    let calls = calling.into_iter().flat_map(Message::tool_calls);
    let looks = calls.filter(|call| &*call.name == LOOK_BACK);
    let names = looks.filter_map(|call| {
        let LookBack { name } = LookBack::deserialize(call.arguments.value()).ok()?;
        Some((call.id.clone(), name))
    });
    names.collect()
}

/// Returns the messages with this name before a place: a call may have brought several.
fn find(messages: &Messages, before: usize, name: &str) -> Vec<Message> {
    let named = messages
        .iter()
        .take(before)
        .filter(|message| message.id().is_some_and(|id| short_name(id) == name));
    named.cloned().collect()
}

/// Writes messages into a result of the tool.
fn fill(result: &mut ToolResult, name: &str, found: &[Message]) {
    if found.is_empty() {
        result.parts = vec![Part::from_text(format!("There is no message `{name}`."))];
        return;
    }
    let mut parts = Vec::new();
    for message in found {
        let mut results = message.tool_results().peekable();
        // A message of words is written out with its role; of a result, the parts are shown as they
        // were.
        if results.peek().is_none() {
            parts.push(Part::from_text(rendered(message)));
        }
        for found in results {
            parts.extend(found.parts.iter().cloned());
        }
    }
    result.parts = parts;
}
