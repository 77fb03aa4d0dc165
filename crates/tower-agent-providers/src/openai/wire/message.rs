use serde_json::{Map, Value, json};

use super::super::PROVIDER;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{ImageSource, Message, Part, ProviderData, Role, ToolCall, ToolResult};
use tower_agent::model::ModelRequest;

/// The conversation, as the protocol has it.
pub(super) fn messages(request: &ModelRequest) -> Result<Vec<Value>> {
    let mut list = Vec::with_capacity(request.messages().len() + 1);
    if let Some(instructions) = request.instructions().filter(|text| !text.is_empty()) {
        list.push(json!({ "role": "system", "content": instructions }));
    }
    // What tools showed beside text. Results must stand together, so it follows the last of them.
    let mut shown = Vec::new();
    for message in request.messages() {
        if message.role() != Role::Tool {
            flush(&mut list, &mut shown);
        }
        for result in message.tool_results() {
            list.push(tool_message(result)?);
            shown.extend(pictures(result)?);
        }
        match message.role() {
            Role::Tool => shown.extend(contents(message.parts())?),
            _ if holds_results_alone(message) => {}
            role => list.push(plain_message(role, message)?),
        }
    }
    flush(&mut list, &mut shown);
    Ok(list)
}

fn flush(list: &mut Vec<Value>, shown: &mut Vec<Value>) {
    if !shown.is_empty() {
        list.push(json!({ "role": "user", "content": std::mem::take(shown) }));
    }
}

fn holds_results_alone(message: &Message) -> bool {
    let parts = message.parts();
    !parts.is_empty() && parts.iter().all(|part| matches!(part, Part::ToolResult(_)))
}

fn plain_message(role: Role, message: &Message) -> Result<Value> {
    let mut json = Map::new();
    json.insert("role".into(), name(role)?.into());
    let calls: Vec<_> = message.tool_calls().map(tool_call).collect();
    let parts = contents(message.parts())?;
    let text = match role {
        // Other roles mostly say one thing, and some servers take only a string from them.
        Role::User => text_alone(&parts, None),
        _ => text_alone(&parts, Some("")),
    };
    json.insert(
        "content".into(),
        match text {
            Some(_) if parts.is_empty() && !calls.is_empty() => Value::Null,
            Some(text) => text.into(),
            None => parts.into(),
        },
    );
    if !calls.is_empty() {
        json.insert("tool_calls".into(), calls.into());
    }
    for part in message.parts() {
        if let Part::Reasoning(reasoning) = part {
            add(&mut json, &reasoning.provider);
        }
    }
    add(&mut json, message.provider());
    Ok(json.into())
}

fn tool_message(result: &ToolResult) -> Result<Value> {
    let words = result.parts.iter().filter(|part| !matches!(part, Part::Image(_)));
    let parts = contents(words)?;
    let content = match text_alone(&parts, Some("\n")) {
        Some(text) => text.into(),
        None => Value::from(parts),
    };
    Ok(json!({ "role": "tool", "tool_call_id": &*result.call_id, "content": content }))
}

/// The pictures of a result, after a line that says where they come from.
fn pictures(result: &ToolResult) -> Result<Vec<Value>> {
    let pictures = result.parts.iter().filter(|part| matches!(part, Part::Image(_)));
    let mut shown = contents(pictures)?;
    if !shown.is_empty() {
        let text = format!("Shown by the tool `{}` (call {}):", result.name, result.call_id);
        shown.insert(0, json!({ "type": "text", "text": text }));
    }
    Ok(shown)
}

fn contents<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<Vec<Value>> {
    parts.into_iter().filter_map(|part| content(part).transpose()).collect()
}

/// What this protocol has no words for is not left out unsaid.
pub(super) fn unknown(what: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the protocol has no such {what}"))
}

/// A part of a message's `content`, or `None` for what stands elsewhere in the message.
fn content(part: &Part) -> Result<Option<Value>> {
    Ok(match part {
        Part::Text(text) => {
            Some(added(json!({ "type": "text", "text": text.text }), &text.provider))
        }
        Part::Image(image) => {
            let url = match &image.source {
                ImageSource::Url(url) => url.clone(),
                ImageSource::Base64 { media_type, data } => {
                    format!("data:{media_type};base64,{data}")
                }
                _ => return Err(unknown("source of a picture")),
            };
            let json = json!({ "type": "image_url", "image_url": { "url": url } });
            Some(added(json, &image.provider))
        }
        Part::Provider(data) => data.get(PROVIDER).cloned(),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        _ => return Err(unknown("part of a message")),
    })
}

/// The parts as one string, if they are nothing but text, and one part unless `join` is given.
fn text_alone(parts: &[Value], join: Option<&str>) -> Option<String> {
    let texts = parts.iter().map(|part| {
        let fields = part.as_object()?;
        // A field that a provider added needs the part to stay one.
        (fields.len() == 2 && fields.get("type")? == "text")
            .then(|| fields.get("text")?.as_str())?
    });
    let texts: Vec<_> = texts.collect::<Option<_>>()?;
    match (join, &*texts) {
        (_, []) => Some(String::new()),
        (_, [one]) => Some((*one).to_owned()),
        (Some(join), many) => Some(many.join(join)),
        (None, _) => None,
    }
}

fn tool_call(call: &ToolCall) -> Value {
    let function = json!({ "name": &*call.name, "arguments": call.arguments.as_str() });
    added(json!({ "id": &*call.id, "type": "function", "function": function }), &call.provider)
}

/// The JSON with what this provider added to it.
pub(super) fn added(mut json: Value, data: &ProviderData) -> Value {
    if let Value::Object(fields) = &mut json {
        add(fields, data);
    }
    json
}

fn add(fields: &mut Map<String, Value>, data: &ProviderData) {
    if let Some(Value::Object(more)) = data.get(PROVIDER) {
        fields.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}

fn name(role: Role) -> Result<&'static str> {
    Ok(match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => return Err(unknown("role")),
    })
}
