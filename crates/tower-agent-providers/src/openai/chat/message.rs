use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::media::Media;
use super::provider::{CALL_IDS, PROTOCOL, PROVIDER, added};
use crate::json::{self, Object, write};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::{Error, Result};
use tower_agent::message::{Message, Messages, Part, ProviderData, Role, ToolCall, ToolResult};
use tower_agent::model::ModelRequest;

/// Writes the conversation in the protocol's format.
pub(super) fn messages(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'[');
    if let Some(instructions) = request.instructions().filter(|text| !text.is_empty()) {
        write(
            out,
            Words {
                role: name(Role::System)?,
                content: instructions,
            },
        )?;
        out.push(b',');
    }
    let messages = request.messages();
    request.write_messages(PROTOCOL, out, |index, out| {
        let message = &messages[index];
        check(index, message)?;
        if message.role() != Role::Tool {
            shown(messages, index, out)?;
        }
        for result in message.tool_results() {
            tool_message(result, &CALL_IDS.of_result(result, messages, index), out)?;
        }
        match message.role() {
            Role::Tool => Ok(()),
            _ if holds_results_alone(message) => Ok(()),
            role => plain_message(role, message, out),
        }
    })?;
    shown(messages, messages.len(), out)?;
    json::end_array(out);
    Ok(())
}

#[derive(Serialize)]
struct Words<'a> {
    role: &'a str,
    content: &'a str,
}

/// Images, audio and documents from tool results.
enum Shown<'a> {
    /// The line that names the source of the following parts.
    Media(&'a ToolResult),
    Part(&'a Part),
}

/// Writes the media of the tool results that end before a message. Results must not be separated,
/// so the media follow the last one.
fn shown(messages: &Messages, before: usize, out: &mut Vec<u8>) -> Result<()> {
    let is_tool = |&at: &usize| messages[at].role() == Role::Tool;
    let first = (before - (0..before).rev().take_while(is_tool).count()).saturating_sub(1);
    let mut all = Vec::new();
    for message in messages.range(first).take(before - first) {
        for result in message.tool_results() {
            let media = result.parts.iter().filter(|part| is_media(part));
            let mut media = media.map(Shown::Part).peekable();
            all.extend(media.peek().is_some().then_some(Shown::Media(result)));
            all.extend(media);
        }
        if message.role() == Role::Tool {
            all.extend(
                message
                    .parts()
                    .iter()
                    .filter(|part| is_content(part))
                    .map(Shown::Part),
            );
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let mut message = Object::new(out);
    message.field("role", name(Role::User)?)?;
    message.field_with("content", |out| {
        json::array(out, all, |one, out| match one {
            Shown::Media(of) => {
                let text = format!("Shown by the tool `{}` (call {}):", of.name, of.call_id);
                text_part(&text, None, out)
            }
            Shown::Part(part) => content(part, out),
        })
    })?;
    message.end_with_nulls()?;
    out.push(b',');
    Ok(())
}

fn is_media(part: &Part) -> bool {
    matches!(part, Part::Image(_) | Part::Audio(_) | Part::Document(_))
}

fn holds_results_alone(message: &Message) -> bool {
    let parts = message.parts();
    !parts.is_empty() && parts.iter().all(|part| matches!(part, Part::ToolResult(_)))
}

fn plain_message(role: Role, message: &Message, out: &mut Vec<u8>) -> Result<()> {
    let thoughts = message.parts().iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(&reasoning.provider),
        _ => None,
    });
    let more = merged(thoughts.chain([message.provider()]));
    let has_calls = message.tool_calls().next().is_some();
    let parts = || message.parts().iter().filter(|part| is_content(part));
    let text = match role {
        // Other roles usually have one text, and some servers accept only a string for them.
        Role::User => text_alone(parts(), None),
        _ => text_alone(parts(), Some("")),
    };

    let mut json = Object::with_extra(out, more.as_deref());
    json.field("role", name(role)?)?;
    match text {
        Some(_) if has_calls && parts().next().is_none() => json.field("content", ())?,
        Some(text) => json.field("content", text)?,
        None => json.field_with("content", |out| json::array(out, parts(), content))?,
    }
    if has_calls {
        json.field_with("tool_calls", |out| {
            json::array(out, message.tool_calls(), tool_call)
        })?;
    }
    json.end_with_nulls()?;
    out.push(b',');
    Ok(())
}

fn tool_message(result: &ToolResult, id: &str, out: &mut Vec<u8>) -> Result<()> {
    let words = || {
        result
            .parts
            .iter()
            .filter(|part| is_content(part) && !is_media(part))
    };
    let mut json = Object::new(out);
    json.field("role", name(Role::Tool)?)?;
    json.field("tool_call_id", id)?;
    match text_alone(words(), Some("\n")) {
        Some(text) => json.field("content", text)?,
        None => json.field_with("content", |out| json::array(out, words(), content))?,
    }
    json.end_with_nulls()?;
    out.push(b',');
    Ok(())
}

/// Returns whether a part belongs in a message's `content`.
fn is_content(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Image(_) | Part::Audio(_) | Part::Document(_) => true,
        Part::Provider(data) => data.get(PROVIDER).is_some(),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => false,
        // An unsupported part, which is an error.
        _ => true,
    }
}

fn content(part: &Part, out: &mut Vec<u8>) -> Result<()> {
    match part {
        Part::Text(text) => text_part(&text.text, added(&text.provider), out),
        Part::Provider(data) => write(out, data.get(PROVIDER)),
        part => match Media::of(part)? {
            Some(media) => media.write(out),
            None => Err(unsupported("part of a message")),
        },
    }
}

/// Returns an error that names the first part that the protocol cannot carry.
fn check(index: usize, message: &Message) -> Result<()> {
    let at = |error: Error, place: &str| {
        let text = format!("messages[{index}].{place}: {}", error.message());
        error.with_message(text)
    };
    for (number, part) in message.parts().iter().enumerate() {
        let place = format_args!("parts[{number}]");
        Media::of(part).map_err(|error| at(error, &place.to_string()))?;
        let Part::ToolResult(result) = part else {
            continue;
        };
        for (number, part) in result.parts.iter().enumerate() {
            let place = format_args!("{place}.parts[{number}]");
            Media::of(part).map_err(|error| at(error, &place.to_string()))?;
        }
    }
    Ok(())
}

fn text_part(text: &str, more: Option<&Map<String, Value>>, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, more);
    json.field("type", "text")?;
    json.field("text", text)?;
    json.end_with_nulls()
}

/// Returns the parts as one string if all are text, and there is only one unless `join` is set.
fn text_alone<'a>(
    parts: impl Iterator<Item = &'a Part>,
    join: Option<&str>,
) -> Option<Cow<'a, str>> {
    let mut texts = parts.map(plain_text);
    let Some(first) = texts.next() else {
        return Some(Cow::default());
    };
    let mut text = Cow::Borrowed(first?);
    for more in texts {
        let (more, join) = (more?, join?);
        text.to_mut().extend([join, more]);
    }
    Some(text)
}

/// Returns the text of a part without other fields. A field added by the provider keeps the part
/// separate.
fn plain_text(part: &Part) -> Option<&str> {
    let (own, fields) = match part {
        Part::Text(text) => match added(&text.provider) {
            None => return Some(&text.text),
            Some(more) => (Some(&text.text), more),
        },
        Part::Provider(data) => (None, data.get(PROVIDER)?.as_object()?),
        _ => return None,
    };
    let is_known = |name: &String| name == "type" || name == "text";
    let is_text = match fields.get("type") {
        Some(kind) => kind == "text",
        None => own.is_some(),
    };
    let text = match fields.get("text") {
        Some(text) => text.as_str(),
        None => own.map(|text| &**text),
    };
    text.filter(|_| is_text && fields.keys().all(is_known))
}

fn tool_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("id", CALL_IDS.of_call(call))?;
    json.field("type", "function")?;
    json.field(
        "function",
        Function {
            name: &tool_name(&call.name),
            arguments: call.arguments.as_str(),
        },
    )?;
    json.end_with_nulls()
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    /// The arguments as the model wrote them.
    arguments: &'a str,
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

fn name(role: Role) -> Result<&'static str> {
    Ok(match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => return Err(unsupported("role")),
    })
}
