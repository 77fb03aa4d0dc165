use serde_json::{Value, json};

use super::super::instructions::instructions;
use super::super::model::{answer_tool, describes_schema, is_before_3};
use super::contents::contents;
use super::part::write_text;
use super::provider::{PROTOCOL, PROVIDER, added};
use super::settings::{ToolConfig, function_calling, generation_config};
use crate::json::{self, Items, Object};
use crate::protocol::{
    Call, described, schema_of, unsupported, with_answer_tool, with_server_tools,
};
use tower_agent::error::Result;
use tower_agent::message::ProviderData;
use tower_agent::model::{ModelRequest, ServerToolKind};
use tower_agent::tool::ToolDeclaration;

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &[
    "contents",
    "tools",
    "generationConfig.responseMimeType",
    "generationConfig.responseJsonSchema",
];

/// Writes the body of a call.
///
/// The contents come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, out: &mut Vec<u8>) -> Result<()> {
    let by_tool = answer_tool(call).map(|_| with_answer_tool(call.request()));
    let call = &by_tool
        .as_ref()
        .map_or(*call, |request| call.with_request(request));
    let request = call.request();
    let settings = request.settings();
    let is_before_3 = is_before_3(call.require_model()?);
    if settings.parallel_tool_calls == Some(false) && !request.tools().is_empty() {
        return Err(unsupported("setting as `parallel_tool_calls: false`"));
    }
    // The model stands in the path.
    let mut extra = with_server_tools(settings, PROVIDER, server_tool)?;
    if extra.contains_key("model") {
        extra.to_mut().remove("model");
    }
    let mut json = Object::body(out, &extra, GUARDED);
    json.field_with("contents", |out| contents(request, !is_before_3, out))?;
    let described = describes_schema(call)
        .and_then(|_| schema_of(call))
        .map(described);
    let mut instructions = instructions(request)?;
    instructions.extend(described.as_deref());
    if !instructions.is_empty() {
        json.field_with("systemInstruction", |out| {
            system_instruction(&instructions, out)
        })?;
    }
    if !request.tools().is_empty() {
        json.array("tools", |items| tools(request, items))?;
        let choice = settings.tool_choice.as_ref();
        let choice = choice.map(function_calling).transpose()?;
        json.optional("toolConfig", choice.map(ToolConfig::new))?;
    }
    let mut config = Vec::new();
    // Such a model rejects the media type as well.
    let format = settings
        .response_format
        .as_ref()
        .filter(|_| described.is_none());
    generation_config(settings, format, is_before_3, &mut config)?;
    if config != b"{}" {
        json.field_with("generationConfig", |out| {
            out.extend_from_slice(&config);
            Ok(())
        })?;
    }
    json.end()
}

fn system_instruction(texts: &[&str], out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.field_with("parts", |out| {
        json::array(out, texts, |text, out| {
            write_text(text, &ProviderData::default(), out)
        })
    })?;
    json.end()
}

fn tools(request: &ModelRequest, items: &mut Items<'_>) -> Result<()> {
    // One tool of the protocol declares all functions.
    items.tools(request, PROTOCOL, |items| {
        items.item_with(|out| {
            let mut json = Object::new(out);
            json.field_with("functionDeclarations", |out| {
                json::array(out, request.tools(), |tool, out| function(tool, out))
            })?;
            json.end()
        })
    })
}

/// Returns a tool of the server.
fn server_tool(kind: ServerToolKind) -> Option<Value> {
    match kind {
        ServerToolKind::WebSearch => Some(json!({ "googleSearch": {} })),
        ServerToolKind::WebFetch => Some(json!({ "urlContext": {} })),
        ServerToolKind::CodeExecution => Some(json!({ "codeExecution": {} })),
        _ => None,
    }
}

fn function(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(tool.provider()));
    json.field("name", tool.name())?;
    json.field("description", tool.description())?;
    json.field("parametersJsonSchema", tool.parameters())?;
    json.end()
}
