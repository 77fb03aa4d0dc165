use serde_json::{Map, Value};

use super::content::{content, is_content};
use super::provider::{CALL_IDS, PROTOCOL, PROVIDER, added};
use crate::json::{self, Object, write};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{Messages, Part, Role, Text, ToolCall, ToolResult};
use tower_agent::model::ModelRequest;

/// Writes the conversation as the protocol's items.
pub(super) fn input(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'[');
    let messages = request.messages();
    request.write_messages(PROTOCOL, out, |index, out| {
        items(messages, index, out).map_err(|error| {
            let text = format!("messages[{index}]: {}", error.message());
            error.with_message(text)
        })
    })?;
    json::end_array(out);
    Ok(())
}

/// Writes the items of a message, each with a comma after it.
fn items(messages: &Messages, index: usize, out: &mut Vec<u8>) -> Result<()> {
    let message = &messages[index];
    for result in message.tool_results() {
        function_call_output(result, &CALL_IDS.of_result(result, messages, index), out)?;
        out.push(b',');
    }
    let role = match message.role() {
        Role::Assistant => return said(message.parts(), out),
        Role::System => "system",
        // Whatever stands beside results is shown to the model as if the user had sent it.
        Role::User | Role::Tool => "user",
        _ => return Err(unsupported("role")),
    };
    let parts: Vec<_> = message
        .parts()
        .iter()
        .filter(|part| is_content(part))
        .collect();
    let has_results = message.tool_results().next().is_some() || message.role() == Role::Tool;
    if parts.is_empty() && has_results {
        return Ok(());
    }
    let mut json = Object::with_extra(out, added(message.provider()));
    json.field("type", "message")?;
    json.field("role", role)?;
    json.field_with("content", |out| content(&parts, out))?;
    json.end_with_nulls()?;
    out.push(b',');
    Ok(())
}

fn function_call_output(result: &ToolResult, id: &str, out: &mut Vec<u8>) -> Result<()> {
    let parts: Vec<_> = result
        .parts
        .iter()
        .filter(|part| is_content(part))
        .collect();
    let texts: Option<Vec<_>> = parts.iter().map(|part| plain_text(part)).collect();
    let mut json = Object::new(out);
    json.field("type", "function_call_output")?;
    json.field("call_id", id)?;
    match texts {
        Some(texts) => json.field("output", texts.join("\n"))?,
        None => json.field_with("output", |out| content(&parts, out))?,
    }
    json.end()
}

fn plain_text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) if added(&text.provider).is_none() => Some(&text.text),
        _ => None,
    }
}

/// Writes what the model said, in its order.
fn said(parts: &[Part], out: &mut Vec<u8>) -> Result<()> {
    // A server rejects reasoning that nothing follows, which is what a cut-off response leaves.
    let is_reasoning = |part: &Part| matches!(part, Part::Reasoning(_));
    let end = parts
        .iter()
        .rposition(|part| !is_reasoning(part))
        .map_or(0, |last| last + 1);
    let mut rest = &parts[..end];
    while let Some(part) = rest.first() {
        let taken = match part {
            Part::Text(text) => {
                let is_same =
                    |part: &&Part| matches!(part, Part::Text(it) if item_of(it) == item_of(text));
                let texts = rest.iter().take_while(is_same).count();
                message_item(&rest[..texts], item_of(text), out)?;
                texts
            }
            Part::Reasoning(reasoning) => {
                if let Some(fields) = added(&reasoning.provider).filter(|it| is_sendable(it)) {
                    reasoning_item(fields, out)?;
                }
                1
            }
            Part::ToolCall(call) => {
                function_call(call, out)?;
                1
            }
            Part::Provider(data) => {
                if let Some(item) = data.get(PROVIDER) {
                    write(out, item)?;
                    out.push(b',');
                }
                1
            }
            Part::ToolResult(_) => 1,
            _ => return Err(unsupported("part in a message of the assistant")),
        };
        rest = &rest[taken..];
    }
    Ok(())
}

/// Returns the fields of the message item that a text came in.
fn item_of(text: &Text) -> Option<&Map<String, Value>> {
    added(&text.provider)?.get("item")?.as_object()
}

/// Returns the fields of the text itself within its item.
fn content_of(text: &Text) -> Option<&Map<String, Value>> {
    added(&text.provider)?.get("content")?.as_object()
}

fn message_item(
    texts: &[Part],
    item: Option<&Map<String, Value>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let texts = || {
        texts.iter().filter_map(|part| match part {
            Part::Text(text) if !text.text.is_empty() => Some(text),
            _ => None,
        })
    };
    if texts().next().is_none() {
        return Ok(());
    }
    let mut json = Object::with_extra(out, item);
    json.field("type", "message")?;
    json.field("role", "assistant")?;
    match item {
        // The form that every server accepts for an item that is not its own.
        None if texts().all(|text| content_of(text).is_none()) => {
            json.field(
                "content",
                texts().map(|text| &*text.text).collect::<String>(),
            )?;
        }
        _ => json.field_with("content", |out| json::array(out, texts(), output_part))?,
    }
    json.end_with_nulls()?;
    out.push(b',');
    Ok(())
}

fn output_part(text: &Text, out: &mut Vec<u8>) -> Result<()> {
    let more = content_of(text);
    let mut json = Object::with_extra(out, more);
    if more
        .and_then(|more| more.get("type"))
        .is_some_and(|kind| kind == "refusal")
    {
        json.field("refusal", &text.text)?;
    } else {
        json.field("type", "output_text")?;
        json.field("text", &text.text)?;
        json.field("annotations", [(); 0])?;
    }
    json.end_with_nulls()
}

/// Without its content, the server would look for the item, which it did not keep.
fn is_sendable(reasoning: &Map<String, Value>) -> bool {
    ["encrypted_content", "content"]
        .iter()
        .any(|name| match reasoning.get(*name) {
            None | Some(Value::Null) => false,
            Some(Value::Array(parts)) => !parts.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) => true,
        })
}

fn reasoning_item(fields: &Map<String, Value>, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, fields);
    json.field("type", "reasoning")?;
    json.field("summary", [(); 0])?;
    json.end_with_nulls()?;
    out.push(b',');
    Ok(())
}

fn function_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("type", "function_call")?;
    json.field("call_id", CALL_IDS.of_call(call))?;
    json.field("name", tool_name(&call.name))?;
    json.field("arguments", call.arguments.as_str())?;
    json.end_with_nulls()?;
    out.push(b',');
    Ok(())
}
