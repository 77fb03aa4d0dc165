use serde::Serialize;
use serde_json::{Value, json};

use super::cache::{self, CacheControl};
use super::data::invalid;
use super::provider::{PROTOCOL, PROVIDER, added};
use super::schema::{answer_tool, describes, guaranteed};
use super::served_by::ServedBy;
use super::thinking::Thinking;
use super::{block, conversation};
use crate::json::{self, Items, Object};
use crate::protocol::{
    Call, described as described_text, schema_of, unsupported, with_answer_tool, with_server_tools,
};
use crate::turns;
use tower_agent::error::Result;
use tower_agent::message::Role;
use tower_agent::model::{ModelRequest, ResponseFormat, ServerToolKind, Settings, ToolChoice};
use tower_agent::tool::ToolDeclaration;

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &["messages", "tools", "output_config.format", "stream"];

/// Writes the body of a call.
///
/// The messages come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(
    call: &Call<'_>,
    thinking: Thinking,
    served_by: ServedBy,
    out: &mut Vec<u8>,
) -> Result<()> {
    let by_tool = answer_tool(call).map(|_| with_answer_tool(call.request()));
    let call = &by_tool
        .as_ref()
        .map_or(*call, |request| call.with_request(request));
    let request = call.request();
    let settings = request.settings();
    cache::check(request)?;
    if settings.seed.is_some() {
        return Err(invalid("the protocol has no `seed`: leave it unset"));
    }
    let reasoning = thinking.fields(settings)?;
    let described = schema_of(call).filter(|schema| describes(schema).is_some());
    let format = match described {
        Some(_) => None,
        None => format(settings.response_format.as_ref())?,
    };
    let output_config = OutputConfig {
        effort: reasoning.effort,
        format,
    };
    let described = described.map(described_text);

    let mut extra = with_server_tools(settings, PROVIDER, server_tool)?;
    if served_by != ServedBy::Anthropic && extra.contains_key("model") {
        // The model stands in the path.
        extra.to_mut().remove("model");
    }
    let mut json = Object::body(out, &extra, GUARDED);
    json.field_with("messages", |out| conversation::write(request, out))?;
    match served_by {
        ServedBy::Anthropic => {
            if settings.extra.get("model").is_none_or(Value::is_null) {
                json.field("model", call.require_model()?)?;
            }
        }
        #[cfg(feature = "bedrock")]
        ServedBy::Bedrock => json.field("anthropic_version", "bedrock-2023-05-31")?,
        ServedBy::Vertex => json.field("anthropic_version", "vertex-2023-10-16")?,
    }
    json.field("max_tokens", reasoning.max_tokens)?;
    if has_system(request) || described.is_some() {
        json.array("system", |items| {
            system(request, items)?;
            match &described {
                Some(text) => items.item_with(|out| block::text(text, None, out)),
                None => Ok(()),
            }
        })?;
    }
    if !request.tools().is_empty() {
        json.field_with("tools", |out| tools(request, out))?;
    }
    // A choice without tools is rejected; those of the server stand in `extra`.
    if !request.tools().is_empty() || extra.contains_key("tools") {
        json.optional("tool_choice", choice(settings)?)?;
    }
    json.optional("temperature", settings.temperature)?;
    json.optional("top_p", settings.top_p)?;
    json.optional(
        "stop_sequences",
        Some(&settings.stop).filter(|stop| !stop.is_empty()),
    )?;
    json.optional("thinking", reasoning.thinking)?;
    json.optional(
        "output_config",
        Some(output_config).filter(OutputConfig::is_set),
    )?;
    let cache = settings
        .prompt_cache
        .as_ref()
        .map(CacheControl::of)
        .transpose()?;
    json.optional("cache_control", cache)?;
    json.optional("container", container(request))?;
    if call.is_streamed() && served_by.reads_stream() {
        json.field("stream", true)?;
    }
    json.end()
}

fn instructions(request: &ModelRequest) -> Option<&str> {
    request
        .instructions()
        .filter(|text| !text.trim().is_empty())
}

fn has_system(request: &ModelRequest) -> bool {
    let mut parts = turns::leading(request.messages()).flat_map(|message| message.parts());
    instructions(request).is_some() || parts.any(block::is_sent)
}

fn system(request: &ModelRequest, items: &mut Items<'_>) -> Result<()> {
    if let Some(text) = instructions(request) {
        items.item_with(|out| block::text(text, None, out))?;
    }
    conversation::write_leading(request.messages(), items)
}

fn tools(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    request.write_tools(PROTOCOL, out, |out| {
        json::array(out, request.tools(), |declaration, out| {
            tool(declaration, out)
        })
    })
}

/// Returns a tool of the server, of the version that most models know.
fn server_tool(kind: ServerToolKind) -> Option<Value> {
    let r#type = match kind {
        ServerToolKind::WebSearch => "web_search_20250305",
        ServerToolKind::WebFetch => "web_fetch_20250910",
        ServerToolKind::CodeExecution => "code_execution_20250825",
        _ => return None,
    };
    Some(json!({ "type": r#type, "name": kind.name() }))
}

fn tool(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let fields = added(tool.provider());
    let kind = fields
        .and_then(|fields| fields.get("type"))
        .and_then(Value::as_str);
    let mut json = Object::with_extra(out, fields);
    json.field("name", tool.name())?;
    // The schema of a tool that Anthropic defines is known, and must not be sent.
    if kind.is_none_or(|kind| kind == "custom") {
        json.optional(
            "description",
            Some(tool.description()).filter(|text| !text.is_empty()),
        )?;
        let is_strict = fields.and_then(|fields| fields.get("strict")) == Some(&Value::Bool(true));
        // Strict mode rejects a schema that it cannot guarantee.
        if is_strict {
            json.field("input_schema", guaranteed(tool.parameters()))?;
        } else {
            json.field("input_schema", tool.parameters())?;
        }
    }
    json.end_with_nulls()
}

#[derive(Serialize)]
struct MessagesToolChoice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_parallel_tool_use: Option<bool>,
}

fn choice(settings: &Settings) -> Result<Option<MessagesToolChoice<'_>>> {
    let one_at_a_time = settings.parallel_tool_calls.map(|parallel| !parallel);
    let (r#type, name) = match &settings.tool_choice {
        None if one_at_a_time.is_none() => return Ok(None),
        None | Some(ToolChoice::Auto) => ("auto", None),
        Some(ToolChoice::None) => {
            return Ok(Some(MessagesToolChoice {
                r#type: "none",
                name: None,
                disable_parallel_tool_use: None,
            }));
        }
        Some(ToolChoice::Required) => ("any", None),
        Some(ToolChoice::Tool(name)) => ("tool", Some(&**name)),
        Some(_) => return Err(unsupported("tool choice")),
    };
    Ok(Some(MessagesToolChoice {
        r#type,
        name,
        disable_parallel_tool_use: one_at_a_time,
    }))
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat>,
}

impl OutputConfig<'_> {
    fn is_set(&self) -> bool {
        self.effort.is_some() || self.format.is_some()
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputFormat {
    JsonSchema { schema: Value },
}

fn format(format: Option<&ResponseFormat>) -> Result<Option<OutputFormat>> {
    match format {
        None | Some(ResponseFormat::Text) => Ok(None),
        Some(ResponseFormat::JsonSchema { schema, .. }) => Ok(Some(OutputFormat::JsonSchema {
            schema: guaranteed(schema),
        })),
        Some(ResponseFormat::Json) => Err(invalid(
            "the protocol has no JSON without a schema: use `ResponseFormat::JsonSchema`",
        )),
        Some(_) => Err(unsupported("response format")),
    }
}

/// Returns the container in which the turn that is now continued runs its code. One of an earlier
/// turn may have expired.
fn container(request: &ModelRequest) -> Option<&str> {
    let last = request
        .messages()
        .iter()
        .rev()
        .find(|message| message.role() != Role::Tool)?;
    let container = added(last.provider())?.get("container")?;
    container
        .get("id")?
        .as_str()
        .filter(|_| last.role() == Role::Assistant)
}
