use serde::Serialize;
use serde_json::Value;

use super::super::PROTOCOL;
use super::json::{Object, close};
use super::message::{added, messages, unknown};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{
    CacheRetention, ModelRequest, ReasoningEffort, ResponseFormat, Settings, ToolChoice,
};
use tower_agent::tool::ToolDeclaration;

/// Returns the body of a call.
///
/// The messages come first, so that a body starts with the bytes of the previous one.
pub(in super::super) fn body(
    request: &ModelRequest,
    model: Option<&str>,
    limit_field: &'static str,
) -> Result<Vec<u8>> {
    let settings = request.settings();
    let model = settings.model.as_deref().or(model);
    let is_named = match settings.extra.get("model") {
        Some(extra) => !extra.is_null(),
        None => model.is_some(),
    };
    if !is_named {
        let message = "no model name: set it on the client or in the request's settings";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    let mut body = Vec::new();
    let mut json = Object::new(&mut body, Some(&settings.extra));
    json.field_with("messages", |out| messages(request, out))?;
    json.some("model", model)?;
    set(&mut json, settings, limit_field)?;
    if !request.tools().is_empty() {
        json.field_with("tools", |out| tools(request, out))?;
        json.some("tool_choice", settings.tool_choice.as_ref().map(choice).transpose()?)?;
        json.some("parallel_tool_calls", settings.parallel_tool_calls)?;
    }
    if request.delta_sender().is_some() {
        json.field("stream", true)?;
        json.field("stream_options", StreamOptions { include_usage: true })?;
    }
    json.end_with(|extra| !extra.is_null())?;
    Ok(body)
}

fn set(json: &mut Object<'_>, settings: &Settings, limit_field: &'static str) -> Result<()> {
    json.some("temperature", settings.temperature)?;
    json.some("top_p", settings.top_p)?;
    json.some(limit_field, settings.max_tokens)?;
    json.some("stop", Some(&settings.stop).filter(|stop| !stop.is_empty()))?;
    json.some("seed", settings.seed)?;
    json.some("reasoning_effort", settings.reasoning_effort.as_ref().map(effort).transpose()?)?;
    json.some("response_format", settings.response_format.as_ref().map(format).transpose()?)?;
    let Some(cache) = &settings.prompt_cache else { return Ok(()) };
    json.some("prompt_cache_key", cache.key.as_deref())?;
    json.some("prompt_cache_retention", cache.retention.map(retention).transpose()?)
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

fn tools(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    request.write_tools(PROTOCOL, out, |out| {
        out.push(b'[');
        for declaration in request.tools() {
            tool(declaration, out)?;
            out.push(b',');
        }
        close(out, b']');
        Ok(())
    })
}

fn tool(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out, added(tool.provider()));
    json.field("type", "function")?;
    json.field(
        "function",
        Function {
            name: tool.name(),
            description: tool.description(),
            parameters: tool.parameters(),
        },
    )?;
    json.end()
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Choice<'a> {
    Word(&'static str),
    Tool { r#type: &'static str, function: Named<'a> },
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

fn choice(choice: &ToolChoice) -> Result<Choice<'_>> {
    Ok(match choice {
        ToolChoice::Auto => Choice::Word("auto"),
        ToolChoice::None => Choice::Word("none"),
        ToolChoice::Required => Choice::Word("required"),
        ToolChoice::Tool(name) => Choice::Tool { r#type: "function", function: Named { name } },
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

fn retention(retention: CacheRetention) -> Result<&'static str> {
    Ok(match retention {
        CacheRetention::Short => "in_memory",
        CacheRetention::Long => "24h",
        _ => return Err(unknown("cache retention")),
    })
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format<'a> {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema<'a> },
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    name: &'a str,
    schema: &'a Value,
    strict: bool,
}

fn format(format: &ResponseFormat) -> Result<Format<'_>> {
    Ok(match format {
        ResponseFormat::Text => Format::Text,
        ResponseFormat::Json => Format::JsonObject,
        ResponseFormat::JsonSchema { name, schema, strict } => {
            Format::JsonSchema { json_schema: JsonSchema { name, schema, strict: *strict } }
        }
        _ => return Err(unknown("response format")),
    })
}
