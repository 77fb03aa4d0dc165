use serde::Serialize;
use serde_json::Value;

use super::super::settings::{effort, retention};
use super::message::messages;
use super::provider::{PROTOCOL, added};
use crate::json::{self, Object};
use crate::protocol::{Call, unsupported};
use tower_agent::error::Result;
use tower_agent::model::{ModelRequest, ResponseFormat, Settings, ToolChoice};
use tower_agent::tool::ToolDeclaration;

/// Writes the body of a call.
///
/// The messages come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, out: &mut Vec<u8>) -> Result<()> {
    let request = call.request();
    let settings = request.settings();
    let mut json = Object::with_extra(out, &settings.extra);
    json.array("messages", |items| messages(request, items))?;
    if settings.extra.get("model").is_none_or(Value::is_null) {
        json.field("model", call.require_model()?)?;
    }
    set(&mut json, settings, limit_field(call.host()))?;
    // A choice without tools is rejected.
    if !request.tools().is_empty() {
        json.field_with("tools", |out| tools(request, out))?;
        json.optional(
            "tool_choice",
            settings.tool_choice.as_ref().map(choice).transpose()?,
        )?;
        json.optional("parallel_tool_calls", settings.parallel_tool_calls)?;
    }
    if call.is_streamed() {
        json.field("stream", true)?;
        // Without it a stream says nothing about its usage.
        json.field(
            "stream_options",
            StreamOptions {
                include_usage: true,
            },
        )?;
    }
    json.end()
}

/// OpenAI's newer models reject `max_tokens`; servers such as Ollama ignore the newer name.
fn limit_field(host: &str) -> &'static str {
    let is_openai = [".openai.com", ".openai.azure.com"].iter().any(|domain| {
        let end = host
            .len()
            .checked_sub(domain.len())
            .and_then(|start| host.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(domain))
    });
    if is_openai {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

fn set(json: &mut Object<'_>, settings: &Settings, limit_field: &'static str) -> Result<()> {
    json.optional("temperature", settings.temperature)?;
    json.optional("top_p", settings.top_p)?;
    json.optional(limit_field, settings.max_tokens)?;
    json.optional("stop", Some(&settings.stop).filter(|stop| !stop.is_empty()))?;
    json.optional("seed", settings.seed)?;
    json.optional(
        "reasoning_effort",
        settings.reasoning_effort.as_ref().map(effort).transpose()?,
    )?;
    json.optional(
        "response_format",
        settings.response_format.as_ref().map(format).transpose()?,
    )?;
    let Some(cache) = &settings.prompt_cache else {
        return Ok(());
    };
    json.optional("prompt_cache_key", cache.key.as_deref())?;
    json.optional(
        "prompt_cache_retention",
        cache.retention.map(retention).transpose()?,
    )
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

fn tools(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    request.write_tools(PROTOCOL, out, |out| {
        json::array(out, request.tools(), |declaration, out| {
            tool(declaration, out)
        })
    })
}

fn tool(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(tool.provider()));
    json.field("type", "function")?;
    json.field(
        "function",
        ChatFunction {
            name: tool.name(),
            description: tool.description(),
            parameters: tool.parameters(),
        },
    )?;
    json.end_with_nulls()
}

#[derive(Serialize)]
struct ChatFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChatToolChoice<'a> {
    Word(&'static str),
    Tool {
        r#type: &'static str,
        function: Named<'a>,
    },
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

fn choice(choice: &ToolChoice) -> Result<ChatToolChoice<'_>> {
    Ok(match choice {
        ToolChoice::Auto => ChatToolChoice::Word("auto"),
        ToolChoice::None => ChatToolChoice::Word("none"),
        ToolChoice::Required => ChatToolChoice::Word("required"),
        ToolChoice::Tool(name) => ChatToolChoice::Tool {
            r#type: "function",
            function: Named { name },
        },
        _ => return Err(unsupported("tool choice")),
    })
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatFormat<'a> {
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

fn format(format: &ResponseFormat) -> Result<ChatFormat<'_>> {
    Ok(match format {
        ResponseFormat::Text => ChatFormat::Text,
        ResponseFormat::Json => ChatFormat::JsonObject,
        ResponseFormat::JsonSchema {
            name,
            schema,
            strict,
        } => ChatFormat::JsonSchema {
            json_schema: JsonSchema {
                name,
                schema,
                strict: *strict,
            },
        },
        _ => return Err(unsupported("response format")),
    })
}
