use serde_json::{Value, json};

use super::super::instructions::instructions;
use super::super::model::{answer_tool, describes_schema, is_before_3};
use super::input::input;
use super::provider::{PROTOCOL, PROVIDER, added};
use super::settings::{generation_config, response_format};
use crate::json::{Items, Object};
use crate::protocol::{
    Call, described, schema_of, unsupported, with_answer_tool, with_server_tools,
};
use tower_agent::error::Result;
use tower_agent::model::{ModelRequest, ServerToolKind};
use tower_agent::tool::ToolDeclaration;

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &["input", "tools", "response_format", "stream"];

/// Writes the body of a call.
///
/// The input comes first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, out: &mut Vec<u8>) -> Result<()> {
    let by_tool = answer_tool(call).map(|_| with_answer_tool(call.request()));
    let call = &by_tool
        .as_ref()
        .map_or(*call, |request| call.with_request(request));
    let request = call.request();
    let settings = request.settings();
    let model = call.require_model()?;
    let has_tools = !request.tools().is_empty();
    if settings.parallel_tool_calls == Some(false) && has_tools {
        return Err(unsupported("setting as `parallel_tool_calls: false`"));
    }
    let extra = with_server_tools(settings, PROVIDER, server_tool)?;
    let mut json = Object::body(out, &extra, GUARDED);
    json.array("input", |items| input(request, !is_before_3(model), items))?;
    json.field("model", model)?;
    // Nothing is kept by the server, so that each request says all.
    json.field("store", false)?;
    let described = describes_schema(call)
        .and_then(|_| schema_of(call))
        .map(described);
    let mut instructions = instructions(request)?;
    instructions.extend(described.as_deref());
    if !instructions.is_empty() {
        json.field("system_instruction", instructions.join("\n\n"))?;
    }
    if has_tools {
        json.array("tools", |items| tools(request, items))?;
    }
    let mut config = Vec::new();
    generation_config(settings, has_tools, &mut config)?;
    if config != b"{}" {
        json.field_with("generation_config", |out| {
            out.extend_from_slice(&config);
            Ok(())
        })?;
    }
    let format = settings
        .response_format
        .as_ref()
        // Such a model rejects the media type as well.
        .filter(|_| described.is_none())
        .map(response_format)
        .transpose()?;
    json.optional("response_format", format)?;
    // Said either way: some servers stream by default.
    json.field("stream", call.is_streamed())?;
    json.end()
}

fn tools(request: &ModelRequest, items: &mut Items<'_>) -> Result<()> {
    items.tools(request, PROTOCOL, |items| {
        for tool in request.tools() {
            items.item_with(|out| function(tool, out))?;
        }
        Ok(())
    })
}

/// Returns a tool of the server.
fn server_tool(kind: ServerToolKind) -> Option<Value> {
    let r#type = match kind {
        ServerToolKind::WebSearch => "google_search",
        ServerToolKind::WebFetch => "url_context",
        ServerToolKind::CodeExecution => "code_execution",
        _ => return None,
    };
    Some(json!({ "type": r#type }))
}

fn function(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(tool.provider()));
    json.field("type", "function")?;
    json.field("name", tool.name())?;
    json.field("description", tool.description())?;
    json.field("parameters", tool.parameters())?;
    json.end()
}
