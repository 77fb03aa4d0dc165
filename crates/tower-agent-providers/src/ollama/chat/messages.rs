use std::borrow::Cow;

use serde_json::{Map, Value};

use super::provider::{PROTOCOL, PROVIDER, added};
use crate::json::{self, Items, Object, write};
use crate::protocol::{joined, tool_name, unsupported};
use tower_agent::error::{Error, Result};
use tower_agent::message::{MediaSource, Message, Part, ProviderData, Role, ToolCall, ToolResult};
use tower_agent::model::ModelRequest;

/// Writes the conversation in the protocol's format.
pub(super) fn messages(request: &ModelRequest, items: &mut Items<'_>) -> Result<()> {
    if let Some(instructions) = request.instructions().filter(|text| !text.is_empty()) {
        items.item_with(|out| {
            let mut json = Object::new(out);
            json.field("role", "system")?;
            json.field("content", instructions)?;
            json.end()
        })?;
    }
    let messages = request.messages();
    items.messages(request, PROTOCOL, |index, items| {
        let message = &messages[index];
        // A part that is left out below would be lost without an error.
        check(index, message)?;
        // Results come before the message's other parts: they must follow their calls.
        for result in message.tool_results() {
            items.item_with(|out| tool_message(result, out))?;
        }
        // An empty message is sent as one; a message of results alone is its results.
        let parts = message.parts();
        if parts.is_empty() || !parts.iter().all(is_result) {
            items.item_with(|out| plain_message(message, out))?;
        }
        Ok(())
    })
}

fn is_result(part: &Part) -> bool {
    matches!(part, Part::ToolResult(_))
}

fn plain_message(message: &Message, out: &mut Vec<u8>) -> Result<()> {
    let parts = message.parts();
    let (role, between) = match message.role() {
        Role::System => ("system", "\n"),
        // The parts of a tool message that are no results.
        Role::User | Role::Tool => ("user", "\n"),
        Role::Assistant => ("assistant", ""),
        _ => return Err(unsupported("role")),
    };
    let thoughts: Vec<_> = parts.iter().filter_map(own_thought).collect();
    let data = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&text.provider),
        Part::Reasoning(reasoning) => Some(&reasoning.provider),
        _ => None,
    });
    // The protocol has one message where we have several parts, so the data of all of them goes
    // there.
    let more = merged(data.chain([message.provider()]));
    let mut json = Object::with_extra(out, more.as_deref());
    json.field("role", role)?;
    json.field("content", joined(parts, between))?;
    json.optional(
        "thinking",
        Some(thoughts.join("\n")).filter(|thought| !thought.is_empty()),
    )?;
    images(parts, &mut json)?;
    if message.tool_calls().next().is_some() {
        json.field_with("tool_calls", |out| {
            json::array(out, message.tool_calls(), tool_call)
        })?;
    }
    json.end_with_nulls()
}

fn tool_message(result: &ToolResult, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.field("role", "tool")?;
    json.field("content", joined(&result.parts, "\n"))?;
    json.field("tool_name", tool_name(&result.name))?;
    json.field("tool_call_id", &*result.call_id)?;
    images(&result.parts, &mut json)?;
    json.end()
}

fn tool_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("id", &*call.id)?;
    json.field_with("function", |out| {
        let mut json = Object::new(out);
        json.field("name", tool_name(&call.name))?;
        json.field_with("arguments", |out| json::arguments(out, &call.arguments))?;
        json.end()
    })?;
    json.end_with_nulls()
}

fn own_thought(part: &Part) -> Option<&str> {
    match part {
        // Reasoning of another provider is not this model's.
        Part::Reasoning(reasoning) if reasoning.provider.get(PROVIDER).is_some() => {
            Some(&reasoning.text)
        }
        _ => None,
    }
}

fn images(parts: &[Part], json: &mut Object<'_>) -> Result<()> {
    let mut images = parts.iter().filter_map(|part| match part {
        Part::Image(image) => Some(&image.source),
        _ => None,
    });
    let Some(first) = images.next() else {
        return Ok(());
    };
    json.field_with("images", |out| {
        json::array(
            out,
            [first].into_iter().chain(images),
            |source, out| match source {
                MediaSource::Base64 { data, .. } => write(out, data),
                _ => Err(unsupported("source of an image")),
            },
        )
    })
}

/// Returns an error that names the first part that the protocol cannot carry.
fn check(index: usize, message: &Message) -> Result<()> {
    for (number, part) in message.parts().iter().enumerate() {
        check_part(part)
            .map_err(|error| at(format_args!("messages[{index}].parts[{number}]"), error))?;
        let Part::ToolResult(result) = part else {
            continue;
        };
        for (inner, part) in result.parts.iter().enumerate() {
            check_part(part).map_err(|error| {
                let path = format_args!("messages[{index}].parts[{number}].parts[{inner}]");
                at(path, error)
            })?;
        }
    }
    Ok(())
}

/// Returns an error that says where in the request the problem is.
fn at(path: std::fmt::Arguments<'_>, error: Error) -> Error {
    let message = format!("{path}: {}", error.message());
    error.with_message(message)
}

fn check_part(part: &Part) -> Result<()> {
    match part {
        Part::Text(_) | Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => Ok(()),
        Part::Image(image) => match image.source {
            MediaSource::Base64 { .. } => Ok(()),
            _ => Err(unsupported("image by URL or file id: send base64")),
        },
        Part::Audio(_) => Err(unsupported("audio")),
        Part::Document(_) => Err(unsupported("document: send its text")),
        Part::Provider(data) => match data.get(PROVIDER) {
            Some(_) => Err(unsupported("part of its own")),
            None => Ok(()),
        },
        _ => Err(unsupported("part of a message")),
    }
}

/// Returns the data added at several places; for equal keys the last wins.
fn merged<'a>(all: impl Iterator<Item = &'a ProviderData>) -> Option<Cow<'a, Map<String, Value>>> {
    all.filter_map(added)
        .map(Cow::Borrowed)
        .reduce(|mut fields, more| {
            fields.to_mut().extend(more.into_owned());
            fields
        })
}
