use serde_json::{Map, Value, json};

use super::message::{added, messages, unknown};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{ModelRequest, ReasoningEffort, ResponseFormat, Settings, ToolChoice};
use tower_agent::tool::ToolDeclaration;

/// The body of a call: the request as the protocol's JSON.
pub(in super::super) fn body(
    request: &ModelRequest,
    model: Option<&str>,
    limit_field: &'static str,
) -> Result<Vec<u8>> {
    let settings = request.settings();
    let mut body = Map::new();
    if let Some(model) = settings.model.as_deref().or(model) {
        body.insert("model".into(), model.into());
    }
    body.insert("messages".into(), messages(request)?.into());
    set(&mut body, settings, limit_field)?;
    if !request.tools().is_empty() {
        let tools = request.tools().iter().map(|declaration| tool(declaration));
        body.insert("tools".into(), tools.collect());
        let choice = settings.tool_choice.as_ref().map(tool_choice).transpose()?;
        insert(&mut body, "tool_choice", choice);
        insert(&mut body, "parallel_tool_calls", settings.parallel_tool_calls);
    }
    if request.delta_sender().is_some() {
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    merge(&mut body, &settings.extra);
    if !body.contains_key("model") {
        let message = "no model is named: neither the client nor the request's settings do";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    Ok(serde_json::to_vec(&body)?)
}

fn set(
    body: &mut Map<String, Value>,
    settings: &Settings,
    limit_field: &'static str,
) -> Result<()> {
    insert(body, "temperature", settings.temperature);
    insert(body, "top_p", settings.top_p);
    insert(body, limit_field, settings.max_tokens);
    insert(body, "stop", (!settings.stop.is_empty()).then(|| settings.stop.clone()));
    insert(body, "seed", settings.seed);
    insert(body, "reasoning_effort", settings.reasoning_effort.as_ref().map(effort).transpose()?);
    let format = settings.response_format.as_ref().map(response_format).transpose()?;
    insert(body, "response_format", format);
    Ok(())
}

fn insert(body: &mut Map<String, Value>, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(field.into(), value.into());
    }
}

fn merge(body: &mut Map<String, Value>, extra: &Map<String, Value>) {
    for (field, value) in extra {
        match value {
            Value::Null => body.remove(field),
            value => body.insert(field.clone(), value.clone()),
        };
    }
}

fn tool(tool: &ToolDeclaration) -> Value {
    let function = json!({
        "name": tool.name(),
        "description": tool.description(),
        "parameters": tool.parameters(),
    });
    added(json!({ "type": "function", "function": function }), tool.provider())
}

fn tool_choice(choice: &ToolChoice) -> Result<Value> {
    Ok(match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => json!({ "type": "function", "function": { "name": name } }),
        _ => return Err(unknown("tool choice")),
    })
}

fn effort(effort: &ReasoningEffort) -> Result<&str> {
    Ok(match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Other(word) => word,
        _ => return Err(unknown("reasoning effort")),
    })
}

fn response_format(format: &ResponseFormat) -> Result<Value> {
    Ok(match format {
        ResponseFormat::Text => json!({ "type": "text" }),
        ResponseFormat::Json => json!({ "type": "json_object" }),
        ResponseFormat::JsonSchema { name, schema, strict } => json!({
            "type": "json_schema",
            "json_schema": { "name": name, "schema": schema, "strict": strict },
        }),
        _ => return Err(unknown("response format")),
    })
}
