use std::collections::HashSet;
use std::ops::Range;

use super::super::model::NO_SIGNATURE;
use super::content::{content_step, function_result, is_content};
use super::provider::{PROTOCOL, PROVIDER, SIGNED_PROTOCOL, added};
use crate::json::{self, Object, write};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{Message, Messages, Part, Reasoning, Role, ToolCall};
use tower_agent::model::ModelRequest;

/// Writes the conversation as the protocol's steps. `is_signed` is set for models that require
/// signatures.
pub(super) fn input(request: &ModelRequest, is_signed: bool, out: &mut Vec<u8>) -> Result<()> {
    let messages = request.messages();
    let protocol = if is_signed { SIGNED_PROTOCOL } else { PROTOCOL };
    out.push(b'[');
    request.write_messages(protocol, out, |index, out| {
        steps(messages, index, is_signed, out)
    })?;
    let turn = Turn::before(messages, messages.len(), None);
    if !turn.unanswered.is_empty() {
        user_inputs(messages, turn.range, out)?;
    }
    json::end_array(out);
    Ok(())
}

/// Writes the steps of a message, each with a comma after it.
///
/// Results must directly follow their calls: until every call has one, what the user says waits.
fn steps(messages: &Messages, index: usize, is_signed: bool, out: &mut Vec<u8>) -> Result<()> {
    let message = &messages[index];
    match message.role() {
        Role::Assistant if !is_said(message) => return Ok(()),
        // Sent elsewhere.
        Role::System => return Ok(()),
        Role::Assistant | Role::User | Role::Tool => {}
        _ => return Err(unsupported("role")),
    }
    let next = Some(message).filter(|message| message.role() != Role::Assistant);
    let mut turn = Turn::before(messages, index, next);
    let has_waited = !turn.unanswered.is_empty();
    if message.role() == Role::Assistant {
        if has_waited {
            user_inputs(messages, turn.range, out)?;
        }
        return said(message.parts(), is_signed, out);
    }
    for result in message.tool_results() {
        turn.unanswered.remove(&*result.call_id);
        function_result(result, out)?;
        out.push(b',');
    }
    if !turn.unanswered.is_empty() {
        return Ok(());
    }
    if has_waited {
        user_inputs(messages, turn.range, out)?;
    }
    user_input(message, out)
}

/// Writes what the user says in these messages.
fn user_inputs(messages: &Messages, range: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
    let mut said = messages.range(range.start).take(range.len());
    said.try_for_each(|message| user_input(message, out))
}

fn user_input(message: &Message, out: &mut Vec<u8>) -> Result<()> {
    if is_input(message) {
        let parts = message.parts().iter().filter(|part| is_content(part));
        content_step("user_input", parts, out)?;
        out.push(b',');
    }
    Ok(())
}

/// What has been said since the model spoke.
struct Turn<'a> {
    range: Range<usize>,
    /// The model's calls that have no result yet. Only found if something could wait for them.
    unanswered: HashSet<&'a str>,
}

impl<'a> Turn<'a> {
    /// Returns the turn before a message, which is the `next` one.
    fn before(messages: &'a Messages, index: usize, next: Option<&Message>) -> Self {
        let last = (0..index).rev().find(|&at| is_said(&messages[at]));
        let start = last.map_or(0, |last| last + 1);
        let added = || messages.range(start).take(index - start);
        let range = start..index;
        if !added().chain(next).any(is_input) {
            return Self {
                range,
                unanswered: HashSet::new(),
            };
        }
        // Neighbouring messages of the model are one turn.
        let said = (0..start)
            .rev()
            .map(|at| &messages[at])
            .take_while(|message| matches!(message.role(), Role::Assistant | Role::System));
        let mut unanswered: HashSet<_> = said
            .flat_map(Message::tool_calls)
            .map(|call| &*call.id)
            .collect();
        if !unanswered.is_empty() {
            for result in added().flat_map(Message::tool_results) {
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
fn is_said(message: &Message) -> bool {
    let is_sent = |part: &Part| match part {
        Part::Reasoning(reasoning) => is_signed(reasoning),
        Part::ToolCall(_) => true,
        part => is_content(part),
    };
    message.role() == Role::Assistant && message.parts().iter().any(is_sent)
}

/// Without a signature, reasoning is rejected.
fn is_signed(reasoning: &Reasoning) -> bool {
    let signature = added(&reasoning.provider).and_then(|fields| fields.get("signature"));
    signature
        .and_then(|it| it.as_str())
        .is_some_and(|signature| !signature.is_empty())
}

/// Writes what the model said, in its order.
fn said(parts: &[Part], must_be_signed: bool, out: &mut Vec<u8>) -> Result<()> {
    // Reasoning stands before the calls of a turn, once for all of them.
    let mut needs_reasoning = must_be_signed;
    let mut rest = parts;
    while let Some(part) = rest.first() {
        let is_output = |part: &&Part| is_content(part) && !matches!(part, Part::Provider(_));
        let outputs = rest.iter().take_while(is_output).count();
        match part {
            _ if outputs > 0 => content_step("model_output", &rest[..outputs], out)?,
            Part::Reasoning(reasoning) if is_signed(reasoning) => {
                thought(reasoning, out)?;
                needs_reasoning = false;
            }
            Part::ToolCall(call) => {
                if std::mem::take(&mut needs_reasoning) {
                    no_thought(out)?;
                }
                function_call(call, out)?;
            }
            Part::Provider(data) if is_content(part) => write(out, data.get(PROVIDER))?,
            _ => {
                rest = &rest[1..];
                continue;
            }
        }
        out.push(b',');
        rest = &rest[outputs.max(1)..];
    }
    Ok(())
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
    json.end()?;
    out.push(b',');
    Ok(())
}

fn function_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("type", "function_call")?;
    json.field("id", &*call.id)?;
    json.field("name", tool_name(&call.name))?;
    json.field_with("arguments", |out| json::arguments(out, &call.arguments))?;
    json.end_with_nulls()
}
