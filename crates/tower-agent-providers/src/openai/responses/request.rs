use serde::Serialize;
use serde_json::Value;

use super::super::settings::{effort, retention};
use super::input::input;
use super::provider::PROVIDER;
use super::tools::{choice, server_tool, tools};
use crate::json::Object;
use crate::protocol::{Call, unsupported, with_server_tools};
use tower_agent::error::Result;
use tower_agent::model::{ResponseFormat, Settings};

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &["input", "include", "tools", "text.format", "stream"];

/// Writes the body of a call.
///
/// The input comes first, so that a body starts with the bytes of the previous one.
pub(super) fn body(
    call: &Call<'_>,
    encrypted_reasoning: Option<bool>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let request = call.request();
    let settings = request.settings();
    let extra = with_server_tools(settings, PROVIDER, server_tool)?;
    let mut json = Object::body(out, &extra, GUARDED);
    json.array("input", |items| input(request, items))?;
    if settings.extra.get("model").is_none_or(Value::is_null) {
        json.field("model", call.require_model()?)?;
    }
    // Nothing is kept by the server, so that each request says all: reasoning is sent back too.
    json.field("store", false)?;
    let may_reason = || call.model().is_none_or(may_reason);
    if encrypted_reasoning.unwrap_or_else(may_reason) {
        json.field("include", ["reasoning.encrypted_content"])?;
    }
    json.optional(
        "instructions",
        request.instructions().filter(|text| !text.is_empty()),
    )?;
    set(&mut json, settings)?;
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
    }
    json.end()
}

/// Returns whether a model may reason: those that never do reject a request for encrypted
/// reasoning.
fn may_reason(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    let is_older = ["gpt-3", "gpt-4", "chatgpt-"]
        .iter()
        .any(|start| name.starts_with(start));
    !is_older && !name.contains("-chat")
}

fn set(json: &mut Object<'_>, settings: &Settings) -> Result<()> {
    // Not dropped silently: the answer would look as if the setting had been used.
    if !settings.stop.is_empty() {
        return Err(unsupported("setting as `stop`"));
    }
    if settings.seed.is_some() {
        return Err(unsupported("setting as `seed`"));
    }
    json.optional("temperature", settings.temperature)?;
    json.optional("top_p", settings.top_p)?;
    json.optional("max_output_tokens", settings.max_tokens)?;
    let effort = settings.reasoning_effort.as_ref().map(effort).transpose()?;
    json.optional("reasoning", effort.map(|effort| Reasoning { effort }))?;
    let format = settings.response_format.as_ref().map(format).transpose()?;
    json.optional("text", format.map(|format| TextSettings { format }))?;
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
struct Reasoning<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct TextSettings<'a> {
    format: TextFormat<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat<'a> {
    Text,
    JsonObject,
    JsonSchema {
        name: &'a str,
        schema: &'a Value,
        strict: bool,
    },
}

fn format(format: &ResponseFormat) -> Result<TextFormat<'_>> {
    Ok(match format {
        ResponseFormat::Text => TextFormat::Text,
        ResponseFormat::Json => TextFormat::JsonObject,
        ResponseFormat::JsonSchema {
            name,
            schema,
            strict,
        } => TextFormat::JsonSchema {
            name,
            schema,
            strict: *strict,
        },
        _ => return Err(unsupported("response format")),
    })
}
