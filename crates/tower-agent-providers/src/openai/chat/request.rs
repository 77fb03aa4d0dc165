use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::super::settings::{effort, retention};
use super::dialect::Dialect;
use super::message::messages;
use super::open_api::taken;
use super::provider::{PROVIDER, added};
use crate::json::{self, Object};
use crate::protocol::{Call, schema_of, unsupported, with_answer_tool, with_server_tools};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{ModelRequest, ResponseFormat, Settings, ToolChoice};
use tower_agent::tool::ToolDeclaration;

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &["messages", "tools", "response_format", "stream"];

/// Writes the body of a call.
///
/// The messages come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, dialect: Dialect, out: &mut Vec<u8>) -> Result<()> {
    // Where a schema is not accepted as the format, a tool has it, or the model reads it.
    let by_tool = dialect.answer_tool(call);
    let by_tool = by_tool.map(|_| with_answer_tool(call.request()));
    let call = &by_tool
        .as_ref()
        .map_or(*call, |request| call.with_request(request));
    let request = call.request();
    let settings = request.settings();
    let has_tools = !request.tools().is_empty();
    let described = dialect.describes_schema(call).and_then(|_| schema_of(call));
    // The protocol has none of its own, but some of its servers have.
    let extra = with_server_tools(settings, PROVIDER, |_| None)?;
    let mut json = Object::body(out, &extra, GUARDED);
    json.array("messages", |items| {
        messages(request, dialect, described, items)
    })?;
    if settings.extra.get("model").is_none_or(Value::is_null) {
        json.field("model", call.require_model()?)?;
    }
    set(&mut json, settings, dialect)?;
    let format = match (described, &settings.response_format) {
        // Some servers reject any format beside tools.
        (Some(_), _) if has_tools => None,
        (Some(_), _) => Some(ChatFormat::JsonObject),
        (None, format) => {
            let format = format.as_ref();
            format
                .map(|format| self::format(format, dialect))
                .transpose()?
        }
    };
    json.optional("response_format", format)?;
    // A choice without tools is rejected.
    if has_tools {
        check_choice(settings, dialect, call.host())?;
        json.field_with("tools", |out| tools(request, dialect, out))?;
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

fn set(json: &mut Object<'_>, settings: &Settings, dialect: Dialect) -> Result<()> {
    json.optional("temperature", settings.temperature)?;
    json.optional("top_p", settings.top_p)?;
    json.optional(dialect.limit.name(), settings.max_tokens)?;
    json.optional("stop", Some(&settings.stop).filter(|stop| !stop.is_empty()))?;
    json.optional("seed", settings.seed)?;
    json.optional(
        "reasoning_effort",
        settings.reasoning_effort.as_ref().map(effort).transpose()?,
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

/// Returns an error for a choice that forces a call where none can be forced.
fn check_choice(settings: &Settings, dialect: Dialect, host: &str) -> Result<()> {
    let is_forced = matches!(
        settings.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Tool(_))
    );
    if !is_forced || dialect.forced_tool_choice {
        return Ok(());
    }
    let message = format!(
        "`{host}` accepts no tool choice that forces a call: choose `ToolChoice::Auto`, and for typed \
         answers `AnswerMode::Auto`; or set a `Dialect` that accepts it"
    );
    Err(Error::new(ErrorKind::InvalidRequest, message))
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

fn tools(request: &ModelRequest, dialect: Dialect, out: &mut Vec<u8>) -> Result<()> {
    request.write_tools(dialect.tool_format(), out, |out| {
        json::array(out, request.tools(), |declaration, out| {
            tool(declaration, dialect, out)
        })
    })
}

fn tool(tool: &ToolDeclaration, dialect: Dialect, out: &mut Vec<u8>) -> Result<()> {
    let parameters = taken(tool.parameters(), dialect.open_api_schemas);
    let mut json = Object::with_extra(out, added(tool.provider()));
    json.field("type", "function")?;
    json.field(
        "function",
        ChatFunction {
            name: tool.name(),
            description: tool.description(),
            parameters: &parameters,
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
    schema: Cow<'a, Value>,
    strict: bool,
}

fn format(format: &ResponseFormat, dialect: Dialect) -> Result<ChatFormat<'_>> {
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
                schema: taken(schema, dialect.open_api_schemas),
                strict: *strict,
            },
        },
        _ => return Err(unsupported("response format")),
    })
}
