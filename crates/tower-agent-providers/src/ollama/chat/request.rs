use serde::Serialize;
use serde_json::Value;

use super::messages::messages;
use super::options::{format, options, think};
use super::provider::{PROTOCOL, PROVIDER, added};
use crate::json::{self, Object};
use crate::protocol::{Call, unsupported, with_server_tools};
use tower_agent::error::Result;
use tower_agent::model::{ModelRequest, Settings, ToolChoice};
use tower_agent::tool::ToolDeclaration;

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &["messages", "tools", "format", "stream"];

/// Writes the body of a call.
///
/// The messages come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, num_ctx: Option<u32>, out: &mut Vec<u8>) -> Result<()> {
    let request = call.request();
    let settings = request.settings();
    // The protocol has none of its own, but some of its servers have.
    let extra = with_server_tools(settings, PROVIDER, |_| None)?;
    let mut json = Object::body(out, &extra, GUARDED);
    json.array("messages", |items| messages(request, items))?;
    if settings.extra.get("model").is_none_or(Value::is_null) {
        json.field("model", call.require_model()?)?;
    }
    if has_tools(request, settings)? {
        json.field_with("tools", |out| tools(request, out))?;
    }
    let mut ours = Vec::new();
    options(settings, num_ctx, &mut ours)?;
    if ours != b"{}" {
        json.field_with("options", |out| {
            out.extend_from_slice(&ours);
            Ok(())
        })?;
    }
    json.optional(
        "think",
        settings.reasoning_effort.as_ref().map(think).transpose()?,
    )?;
    let format = settings.response_format.as_ref().map(format).transpose()?;
    json.optional("format", format.flatten())?;
    json.field("truncate", false)?;
    // Streamed by default.
    json.field("stream", call.is_streamed())?;
    json.end()
}

fn has_tools(request: &ModelRequest, settings: &Settings) -> Result<bool> {
    if request.tools().is_empty() {
        return Ok(false);
    }
    if settings.parallel_tool_calls == Some(false) {
        return Err(unsupported("setting as `parallel_tool_calls: false`"));
    }
    match &settings.tool_choice {
        None | Some(ToolChoice::Auto) => Ok(true),
        Some(ToolChoice::None) => Ok(false),
        Some(_) => Err(unsupported("tool choice: only `Auto` and `None`")),
    }
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
        OllamaFunction {
            name: tool.name(),
            description: tool.description(),
            parameters: tool.parameters(),
        },
    )?;
    json.end_with_nulls()
}

#[derive(Serialize)]
struct OllamaFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}
