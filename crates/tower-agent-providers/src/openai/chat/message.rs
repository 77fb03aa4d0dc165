use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::details::Details;
use super::dialect::{Dialect, ReasoningField};
use super::media::ChatMedia;
use super::own_media::is_own_media;
use super::provider::{ABOUT, CALL_IDS, FIELD, PROVIDER, REASONING_DETAILS, added};
use crate::json::{self, Items, Object, write};
use crate::protocol::{described, tool_name, unsupported};
use tower_agent::error::{Error, Result};
use tower_agent::message::{Message, Messages, Part, Role, ToolCall, ToolResult};
use tower_agent::model::ModelRequest;

/// Writes the conversation in the protocol's format, with a schema for the answer to read.
pub(super) fn messages(
    request: &ModelRequest,
    dialect: Dialect,
    schema: Option<&Value>,
    items: &mut Items<'_>,
) -> Result<()> {
    let instructions = instructions(request, schema);
    if !instructions.is_empty() {
        items.item(SystemMessage {
            role: name(Role::System)?,
            content: &instructions,
        })?;
    }
    let messages = request.messages();
    items.messages(request, dialect.format(), |index, items| {
        let message = &messages[index];
        let has_media = check(index, message)?;
        // A message is written once and never again, so it cannot write the media of its own
        // results: another message with results may follow it.
        if message.role() != Role::Tool {
            media_of_results(messages, index, items)?;
        }
        for result in message.tool_results() {
            let id = CALL_IDS.of_result(result, messages, index);
            items.item_with(|out| tool_message(result, &id, out))?;
        }
        match message.role() {
            Role::Tool => Ok(()),
            _ if holds_results_alone(message) => Ok(()),
            Role::Assistant if has_media => {
                items.item_with(|out| message_with_media(message, dialect, out))
            }
            role => items.item_with(|out| plain_message(role, message, &[], dialect, out)),
        }
    })?;
    media_of_results(messages, messages.len(), items)
}

fn instructions<'a>(request: &'a ModelRequest, schema: Option<&Value>) -> Cow<'a, str> {
    let own = request.instructions().unwrap_or_default();
    let Some(schema) = schema else {
        return own.into();
    };
    let between = if own.is_empty() { "" } else { "\n\n" };
    format!("{own}{between}{}", described(schema)).into()
}

#[derive(Serialize)]
struct SystemMessage<'a> {
    role: &'a str,
    content: &'a str,
}

/// Images, audio and documents from tool results.
enum ResultMedia<'a> {
    /// The line that names the source of the following parts.
    Source(&'a ToolResult),
    Part(&'a Part),
}

/// Writes the media of the tool results that end before a message. Results must not be separated,
/// so the media follow the last one.
fn media_of_results(messages: &Messages, before: usize, items: &mut Items<'_>) -> Result<()> {
    let tool_messages = (0..before)
        .rev()
        .take_while(|&index| messages[index].role() == Role::Tool)
        .count();
    // The message before them may be one of the user that has results as well.
    let first = (before - tool_messages).saturating_sub(1);
    let mut all = Vec::new();
    for message in messages.range(first).take(before - first) {
        for result in message.tool_results() {
            let mut media = result.parts.iter().filter(|part| is_media(part)).peekable();
            if media.peek().is_some() {
                all.push(ResultMedia::Source(result));
            }
            all.extend(media.map(ResultMedia::Part));
        }
        // A tool message has no place for anything but its results.
        if message.role() == Role::Tool {
            let content = message.parts().iter().filter(|part| is_content(part));
            all.extend(content.map(ResultMedia::Part));
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    items.item_with(|out| {
        let mut message = Object::new(out);
        message.field("role", name(Role::User)?)?;
        message.field_with("content", |out| {
            json::array(out, all, |media, out| match media {
                ResultMedia::Source(result) => {
                    let name = &result.name;
                    let id = &result.call_id;
                    let text = format!("Shown by the tool `{name}` (call {id}):");
                    text_part(&text, None, out)
                }
                ResultMedia::Part(part) => content(part, out),
            })
        })?;
        message.end_with_nulls()
    })
}

fn is_media(part: &Part) -> bool {
    matches!(part, Part::Image(_) | Part::Audio(_) | Part::Document(_))
}

fn holds_results_alone(message: &Message) -> bool {
    let parts = message.parts();
    !parts.is_empty() && parts.iter().all(|part| matches!(part, Part::ToolResult(_)))
}

/// Writes a message of the model with the media that it made.
fn message_with_media(message: &Message, dialect: Dialect, out: &mut Vec<u8>) -> Result<()> {
    let mut others = message.clone();
    let (media, parts) = others.parts_mut().drain(..).partition(is_own_media);
    *others.parts_mut() = parts;
    plain_message(Role::Assistant, &others, &media, dialect, out)
}

/// Writes a message, and the images among the media that the model made. Its audio goes back as the
/// transcript: the server forgets the audio.
fn plain_message(
    role: Role,
    message: &Message,
    media: &[Part],
    dialect: Dialect,
    out: &mut Vec<u8>,
) -> Result<()> {
    let more = added_to_message(message);
    let has_calls = message.tool_calls().next().is_some();
    let parts = message.parts().iter().filter(|part| {
        is_content(part) || (dialect.reasoning == ReasoningField::Content && is_thought(part))
    });
    // Other roles usually have one text, and some servers accept only a string for them.
    let join = if role == Role::User { None } else { Some("") };
    let text = text_alone(parts.clone(), join);

    let mut json = Object::with_extra(out, more.as_deref());
    json.field("role", name(role)?)?;
    match text {
        // Calls without a text: several servers reject the empty string beside them.
        Some(_) if has_calls && parts.clone().next().is_none() => json.field("content", ())?,
        Some(text) => json.field("content", text)?,
        None => json.field_with("content", |out| json::array(out, parts, content))?,
    }
    if role == Role::Assistant {
        reasoning(message, dialect, &mut json)?;
    }
    let mut images = media
        .iter()
        .filter(|part| matches!(part, Part::Image(_)))
        .peekable();
    if images.peek().is_some() {
        json.field_with("images", |out| json::array(out, images, content))?;
    }
    if has_calls {
        json.field_with("tool_calls", |out| {
            json::array(out, message.tool_calls(), tool_call)
        })?;
    }
    json.end_with_nulls()
}

/// Returns the fields that a message and its reasoning carry for the message, without those that
/// have a place of their own or are not sent.
fn added_to_message(message: &Message) -> Option<Cow<'_, Map<String, Value>>> {
    let thoughts = message.parts().iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => added(&reasoning.provider),
        _ => None,
    });
    let all = thoughts.chain(added(message.provider())).map(sent_fields);
    // For equal names the last counts.
    all.reduce(|mut fields, more| {
        fields.to_mut().extend(more.into_owned());
        fields
    })
}

fn sent_fields(fields: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    let is_sent = |name: &str| ![REASONING_DETAILS, FIELD, ABOUT].contains(&name);
    if fields.keys().all(|name| is_sent(name)) {
        return Cow::Borrowed(fields);
    }
    // Not by removing them from a copy: they can be long.
    let sent = fields.iter().filter(|(name, _)| is_sent(name));
    let sent = sent.map(|(name, value)| (name.clone(), value.clone()));
    Cow::Owned(sent.collect())
}

/// Appends the field of the model's reasoning.
fn reasoning(message: &Message, dialect: Dialect, json: &mut Object<'_>) -> Result<()> {
    let field = match dialect.reasoning {
        ReasoningField::None | ReasoningField::Content => return Ok(()),
        ReasoningField::AsReceived | ReasoningField::DetailsAsReceived => {
            match (details(message), received_field(message)) {
                (Some(details), Some(field)) => {
                    json.field(REASONING_DETAILS, details)?;
                    field
                }
                // The text came in the details alone.
                (Some(details), None) => return json.field(REASONING_DETAILS, details),
                (None, _) if dialect.reasoning == ReasoningField::DetailsAsReceived => {
                    return Ok(());
                }
                (None, field) => field.unwrap_or("reasoning_content"),
            }
        }
        ReasoningField::ReasoningContent => "reasoning_content",
        ReasoningField::Reasoning => "reasoning",
        ReasoningField::ReasoningDetails => match details(message) {
            // The details have the text as well.
            Some(details) => return json.field(REASONING_DETAILS, details),
            None => "reasoning",
        },
    };
    let mut thoughts = message.parts().iter().filter_map(thought);
    match thoughts.next() {
        Some(first) => json.field(
            field,
            thoughts.fold(Cow::from(first), |text, more| text + more),
        ),
        // The empty string counts as missing.
        None if dialect.requires_reasoning => json.field(field, " "),
        None => Ok(()),
    }
}

/// Returns the field in which the reasoning of a message came, if it is marked.
fn received_field(message: &Message) -> Option<&str> {
    message.parts().iter().find_map(|part| match part {
        Part::Reasoning(reasoning) => added(&reasoning.provider)?.get(FIELD)?.as_str(),
        _ => None,
    })
}

/// Returns the details of all reasoning in a message, in their order.
fn details(message: &Message) -> Option<Value> {
    let mut details = Details::default();
    for part in message.parts() {
        let Part::Reasoning(reasoning) = part else {
            continue;
        };
        let fields = added(&reasoning.provider);
        let list = fields.and_then(|fields| fields.get(REASONING_DETAILS)?.as_array());
        for detail in list.into_iter().flatten() {
            details.push(detail.clone());
        }
    }
    details.into_value()
}

fn is_thought(part: &Part) -> bool {
    thought(part).is_some()
}

/// Returns the text of reasoning. That of another provider is not this model's.
fn thought(part: &Part) -> Option<&str> {
    let Part::Reasoning(reasoning) = part else {
        return None;
    };
    let is_own = reasoning.provider.get(PROVIDER).is_some();
    (is_own && !reasoning.text.is_empty()).then_some(&reasoning.text)
}

fn tool_message(result: &ToolResult, id: &str, out: &mut Vec<u8>) -> Result<()> {
    // Media follow in a message of the user: no server accepts them in this one.
    let words = result
        .parts
        .iter()
        .filter(|part| is_content(part) && !is_media(part));
    let mut json = Object::new(out);
    json.field("role", name(Role::Tool)?)?;
    json.field("tool_call_id", id)?;
    match text_alone(words.clone(), Some("\n")) {
        Some(text) => json.field("content", text)?,
        None => json.field_with("content", |out| json::array(out, words, content))?,
    }
    json.end_with_nulls()
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
        Part::Reasoning(reasoning) => thinking_part(&reasoning.text, out),
        Part::Provider(data) => write(out, data.get(PROVIDER)),
        part => match ChatMedia::of(part)? {
            Some(media) => media.write(out),
            None => Err(unsupported("part of a message")),
        },
    }
}

/// Returns whether a message has media, and an error that names the first part that the protocol
/// cannot carry.
///
/// Before anything is written: parts that one message leaves out, another one may have to send.
fn check(index: usize, message: &Message) -> Result<bool> {
    let mut has_media = false;
    for (number, part) in message.parts().iter().enumerate() {
        match ChatMedia::of(part) {
            Ok(media) => has_media |= media.is_some(),
            // Media that the model has made has a place of its own.
            Err(_) if message.role() == Role::Assistant && is_own_media(part) => has_media = true,
            Err(error) => {
                return Err(at(format_args!("messages[{index}].parts[{number}]"), error));
            }
        }
        let Part::ToolResult(result) = part else {
            continue;
        };
        for (inner, part) in result.parts.iter().enumerate() {
            ChatMedia::of(part).map_err(|error| {
                let path = format_args!("messages[{index}].parts[{number}].parts[{inner}]");
                at(path, error)
            })?;
        }
    }
    Ok(has_media)
}

/// Returns an error that says where in the request the problem is.
fn at(path: std::fmt::Arguments<'_>, error: Error) -> Error {
    let message = format!("{path}: {}", error.message());
    error.with_message(message)
}

fn text_part(text: &str, more: Option<&Map<String, Value>>, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, more);
    json.field("type", "text")?;
    json.field("text", text)?;
    json.end_with_nulls()
}

fn thinking_part(thought: &str, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.field("type", "thinking")?;
    json.field_with("thinking", |out| {
        json::array(out, [thought], |thought, out| text_part(thought, None, out))
    })?;
    json.end()
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
        text.to_mut().extend([join?, more?]);
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
    let is_text = match fields.get("type") {
        Some(kind) => kind == "text",
        None => own.is_some(),
    };
    let text = match fields.get("text") {
        Some(text) => text.as_str(),
        None => own.map(|text| &**text),
    };
    let is_alone = fields.keys().all(|name| name == "type" || name == "text");
    text.filter(|_| is_text && is_alone)
}

fn tool_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("id", CALL_IDS.of_call(call))?;
    json.field("type", "function")?;
    json.field(
        "function",
        CalledFunction {
            name: &tool_name(&call.name),
            arguments: call.arguments.as_str(),
        },
    )?;
    json.end_with_nulls()
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    /// The arguments as the model wrote them.
    arguments: &'a str,
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
