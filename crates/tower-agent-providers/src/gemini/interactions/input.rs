use std::collections::HashSet;
use std::ops::Range;

use super::super::model::NO_SIGNATURE;
use super::content::{content_step, function_result, is_content};
use super::provider::{PROTOCOL, PROVIDER, SIGNED_PROTOCOL, added};
use crate::json::{self, Items, Object};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{Message, Messages, Part, Reasoning, Role, ToolCall};
use tower_agent::model::ModelRequest;

/// Writes the conversation as the protocol's steps. `is_signed` is set for models that require
/// signatures.
pub(super) fn input(request: &ModelRequest, is_signed: bool, items: &mut Items<'_>) -> Result<()> {
    let messages = request.messages();
    // The steps of a message depend on it, so the two forms are cached apart.
    let protocol = if is_signed { SIGNED_PROTOCOL } else { PROTOCOL };
    items.messages(request, protocol, |index, items| {
        steps(messages, index, is_signed, items)
    })?;
    // Calls without results at the end of a conversation: nothing follows that would let the
    // waiting messages through.
    let turn = InputTurn::before(messages, messages.len(), None);
    if !turn.unanswered.is_empty() {
        user_inputs(messages, turn.range, items)?;
    }
    Ok(())
}

/// Writes the steps of a message.
///
/// Results must directly follow their calls: until every call has one, the user's messages wait.
fn steps(messages: &Messages, index: usize, is_signed: bool, items: &mut Items<'_>) -> Result<()> {
    let message = &messages[index];
    match message.role() {
        Role::Assistant if !has_output(message) => return Ok(()),
        // Sent as `system_instruction`.
        Role::System => return Ok(()),
        Role::Assistant | Role::User | Role::Tool => {}
        _ => return Err(unsupported("role")),
    }
    let next = Some(message).filter(|message| message.role() != Role::Assistant);
    let mut turn = InputTurn::before(messages, index, next);
    let has_waited = !turn.unanswered.is_empty();
    if message.role() == Role::Assistant {
        // The model went on without the results, so that none will let these through.
        if has_waited {
            user_inputs(messages, turn.range, items)?;
        }
        return output(message.parts(), is_signed, items);
    }
    for result in message.tool_results() {
        turn.unanswered.remove(&*result.call_id);
        items.item_with(|out| function_result(result, out))?;
    }
    // Its own parts are written with those of the message that brings the last result.
    if !turn.unanswered.is_empty() {
        return Ok(());
    }
    if has_waited {
        user_inputs(messages, turn.range, items)?;
    }
    user_input(message, items)
}

/// Writes the user's parts of these messages.
fn user_inputs(messages: &Messages, range: Range<usize>, items: &mut Items<'_>) -> Result<()> {
    for message in messages.range(range.start).take(range.len()) {
        user_input(message, items)?;
    }
    Ok(())
}

fn user_input(message: &Message, items: &mut Items<'_>) -> Result<()> {
    if !is_input(message) {
        return Ok(());
    }
    let parts = message.parts().iter().filter(|part| is_content(part));
    items.item_with(|out| content_step("user_input", parts, out))
}

/// The messages since the last one of the model.
struct InputTurn<'a> {
    range: Range<usize>,
    /// The model's calls that have no result yet. Only found if something could wait for them.
    unanswered: HashSet<&'a str>,
}

impl<'a> InputTurn<'a> {
    /// Returns the turn before a message, which is the `next` one.
    fn before(messages: &'a Messages, index: usize, next: Option<&Message>) -> Self {
        let last = (0..index).rev().find(|&at| has_output(&messages[at]));
        let start = last.map_or(0, |last| last + 1);
        let range = start..index;
        let added = messages.range(start).take(index - start);
        // Looking for unanswered calls costs a search of the turn, and most messages only bring
        // results: nothing of theirs has to wait.
        if !added.chain(next).any(is_input) {
            return Self {
                range,
                unanswered: HashSet::new(),
            };
        }
        // Neighbouring messages of the model are one turn.
        let output = (0..start)
            .rev()
            .map(|at| &messages[at])
            .take_while(|message| matches!(message.role(), Role::Assistant | Role::System));
        let mut unanswered: HashSet<_> = output
            .flat_map(Message::tool_calls)
            .map(|call| &*call.id)
            .collect();
        if !unanswered.is_empty() {
            let added = messages.range(start).take(index - start);
            for result in added.flat_map(Message::tool_results) {
                unanswered.remove(&*result.call_id);
            }
        }
        Self { range, unanswered }
    }
}

/// Returns whether a message says something in the user's name.
fn is_input(message: &Message) -> bool {
    matches!(message.role(), Role::User | Role::Tool) && message.parts().iter().any(is_content)
}

/// Returns whether a message of the model writes anything.
fn has_output(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    message.role() == Role::Assistant
        && parts.any(|part| match part {
            Part::Reasoning(reasoning) => is_signed(reasoning),
            Part::ToolCall(_) => true,
            part => is_content(part),
        })
}

/// Without a signature, reasoning is rejected.
fn is_signed(reasoning: &Reasoning) -> bool {
    let signature = added(&reasoning.provider).and_then(|fields| fields.get("signature"));
    signature
        .and_then(|signature| signature.as_str())
        .is_some_and(|signature| !signature.is_empty())
}

/// Writes a message of the model, in its order.
fn output(parts: &[Part], must_be_signed: bool, items: &mut Items<'_>) -> Result<()> {
    // Reasoning stands before the calls of a turn, once for all of them.
    let mut needs_reasoning = must_be_signed;
    let mut remaining = parts;
    while let Some(part) = remaining.first() {
        // Neighbouring outputs are one step, as the model sends them.
        let outputs = remaining.iter().take_while(|part| is_output(part)).count();
        if outputs > 0 {
            let (step, after) = remaining.split_at(outputs);
            items.item_with(|out| content_step("model_output", step, out))?;
            remaining = after;
            continue;
        }
        match part {
            Part::Reasoning(reasoning) if is_signed(reasoning) => {
                items.item_with(|out| thought(reasoning, out))?;
                needs_reasoning = false;
            }
            Part::ToolCall(call) => {
                // Calls that another model made have no signature, and without one the protocol
                // rejects the request.
                if std::mem::take(&mut needs_reasoning) {
                    items.item_with(no_thought)?;
                }
                items.item_with(|out| function_call(call, out))?;
            }
            Part::Provider(data) if is_content(part) => items.item(data.get(PROVIDER))?,
            _ => {}
        }
        remaining = &remaining[1..];
    }
    Ok(())
}

/// Returns whether a part is a content of a step `model_output`. The provider's own parts are steps
/// themselves.
fn is_output(part: &Part) -> bool {
    is_content(part) && !matches!(part, Part::Provider(_))
}

fn thought(reasoning: &Reasoning, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&reasoning.provider));
    json.field("type", "thought")?;
    if !reasoning.text.is_empty() {
        json.field_with("summary", |out| {
            json::array(out, [&reasoning.text], |text, out| {
                let mut json = Object::new(out);
                json.field("type", "text")?;
                json.field("text", text)?;
                json.end()
            })
        })?;
    }
    json.end_with_nulls()
}

/// Writes the step that stands before calls of another model.
fn no_thought(out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.field("type", "thought")?;
    json.field("signature", NO_SIGNATURE)?;
    json.end()
}

fn function_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("type", "function_call")?;
    json.field("id", &*call.id)?;
    json.field("name", tool_name(&call.name))?;
    json.field_with("arguments", |out| json::arguments(out, &call.arguments))?;
    json.end_with_nulls()
}
