use serde_json::{Map, Value};

use super::content::{content, is_content};
use super::provider::{CALL_IDS, PROTOCOL, PROVIDER, added};
use crate::json::{self, Items, Object};
use crate::protocol::{tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{Messages, Part, Role, Text, ToolCall, ToolResult};
use tower_agent::model::ModelRequest;

/// Writes the conversation as the protocol's items.
pub(super) fn input(request: &ModelRequest, items: &mut Items<'_>) -> Result<()> {
    let messages = request.messages();
    items.messages(request, PROTOCOL, |index, items| {
        items_of(messages, index, items).map_err(|error| {
            let text = format!("messages[{index}]: {}", error.message());
            error.with_message(text)
        })
    })
}

/// Writes the items of a message.
fn items_of(messages: &Messages, index: usize, items: &mut Items<'_>) -> Result<()> {
    let message = &messages[index];
    for result in message.tool_results() {
        let id = CALL_IDS.of_result(result, messages, index);
        items.item_with(|out| function_call_output(result, &id, out))?;
    }
    let role = match message.role() {
        Role::Assistant => return output(message.parts(), items),
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
    items.item_with(|out| {
        let mut json = Object::with_extra(out, added(message.provider()));
        json.field("type", "message")?;
        json.field("role", role)?;
        json.field_with("content", |out| content(&parts, out))?;
        json.end_with_nulls()
    })
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

/// Writes a message of the model, in its order.
fn output(parts: &[Part], items: &mut Items<'_>) -> Result<()> {
    // A server rejects reasoning that nothing follows, which is what a cut-off response leaves.
    let end = parts
        .iter()
        .rposition(|part| !matches!(part, Part::Reasoning(_)))
        .map_or(0, |last| last + 1);
    let mut remaining = &parts[..end];
    while let Some(part) = remaining.first() {
        let mut taken = 1;
        match part {
            Part::Text(text) => {
                // The texts of one item go back as one item.
                taken = remaining
                    .iter()
                    .take_while(|part| is_text_of(part, item_of(text)))
                    .count();
                message_item(&remaining[..taken], item_of(text), items)?;
            }
            Part::Reasoning(reasoning) => {
                if let Some(fields) =
                    added(&reasoning.provider).filter(|fields| is_sendable(fields))
                {
                    items.item_with(|out| reasoning_item(fields, out))?;
                }
            }
            Part::ToolCall(call) => items.item_with(|out| function_call(call, out))?,
            Part::Provider(data) => {
                if let Some(item) = data.get(PROVIDER) {
                    items.item(item)?;
                }
            }
            Part::ToolResult(_) => {}
            _ => return Err(unsupported("part in a message of the assistant")),
        }
        remaining = &remaining[taken..];
    }
    Ok(())
}

/// Returns whether a part is a text that came in this message item.
fn is_text_of(part: &Part, item: Option<&Map<String, Value>>) -> bool {
    matches!(part, Part::Text(text) if item_of(text) == item)
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
    parts: &[Part],
    item: Option<&Map<String, Value>>,
    items: &mut Items<'_>,
) -> Result<()> {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) if !text.text.is_empty() => Some(text),
        _ => None,
    });
    if texts.clone().next().is_none() {
        return Ok(());
    }
    let is_plain = item.is_none() && texts.clone().all(|text| content_of(text).is_none());
    items.item_with(|out| {
        let mut json = Object::with_extra(out, item);
        json.field("type", "message")?;
        json.field("role", "assistant")?;
        if is_plain {
            // The form that every server accepts for an item that is not its own.
            let text: String = texts.map(|text| &*text.text).collect();
            json.field("content", text)?;
        } else {
            json.field_with("content", |out| json::array(out, texts, output_part))?;
        }
        json.end_with_nulls()
    })
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
    json.end_with_nulls()
}

fn function_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(&call.provider));
    json.field("type", "function_call")?;
    json.field("call_id", CALL_IDS.of_call(call))?;
    json.field("name", tool_name(&call.name))?;
    json.field("arguments", call.arguments.as_str())?;
    json.end_with_nulls()
}
