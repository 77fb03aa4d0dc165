use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::extra::without;
use super::super::instructions::instructions;
use super::super::model::is_before_3;
use super::contents::contents;
use super::part::write_text;
use super::provider::{PROTOCOL, added};
use super::settings::{function_calling, generation_config};
use crate::json::{self, Items, Object};
use crate::protocol::{Call, unsupported};
use tower_agent::error::Result;
use tower_agent::message::ProviderData;
use tower_agent::model::{ModelRequest, Settings};
use tower_agent::tool::ToolDeclaration;

/// Writes the body of a call.
///
/// The contents come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, out: &mut Vec<u8>) -> Result<()> {
    let request = call.request();
    let settings = request.settings();
    let is_before_3 = is_before_3(call.require_model()?);
    if settings.parallel_tool_calls == Some(false) && !request.tools().is_empty() {
        return Err(unsupported("setting as `parallel_tool_calls: false`"));
    }
    let extra = GenerateContentExtra::of(settings);
    let mut json = Object::with_extra(out, &*extra.others);
    json.field_with("contents", |out| contents(request, !is_before_3, out))?;
    let instructions = instructions(request)?;
    if !instructions.is_empty() {
        json.field_with("systemInstruction", |out| {
            system_instruction(&instructions, out)
        })?;
    }
    if !request.tools().is_empty() || extra.tools.is_some() {
        json.array("tools", |items| tools(request, extra.tools, items))?;
    }
    let choice = settings
        .tool_choice
        .as_ref()
        .filter(|_| !request.tools().is_empty());
    if choice.is_some() || extra.tool_config.is_some() {
        json.field_with("toolConfig", |out| {
            let mut json = Object::with_extra(out, extra.tool_config);
            let choice = choice.map(function_calling).transpose()?;
            json.optional("functionCallingConfig", choice)?;
            json.end()
        })?;
    }
    let mut config = Vec::new();
    generation_config(settings, is_before_3, extra.generation_config, &mut config)?;
    if config != b"{}" {
        json.field_with("generationConfig", |out| {
            out.extend_from_slice(&config);
            Ok(())
        })?;
    }
    json.end()
}

/// The extra fields of the settings, without those that are merged with ours.
struct GenerateContentExtra<'a> {
    others: Cow<'a, Map<String, Value>>,
    generation_config: Option<&'a Map<String, Value>>,
    tool_config: Option<&'a Map<String, Value>>,
    tools: Option<&'a [Value]>,
}

impl<'a> GenerateContentExtra<'a> {
    fn of(settings: &'a Settings) -> Self {
        let extra = &settings.extra;
        let generation_config = extra.get("generationConfig").and_then(Value::as_object);
        let tool_config = extra.get("toolConfig").and_then(Value::as_object);
        let tools = extra
            .get("tools")
            .and_then(Value::as_array)
            .map(Vec::as_slice);
        let merged = [
            // The model stands in the path.
            ("model", true),
            ("generationConfig", generation_config.is_some()),
            ("toolConfig", tool_config.is_some()),
            ("tools", tools.is_some()),
        ];
        Self {
            others: without(extra, &merged),
            generation_config,
            tool_config,
            tools,
        }
    }
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

fn tools(request: &ModelRequest, more: Option<&[Value]>, items: &mut Items<'_>) -> Result<()> {
    // One tool of the protocol declares all functions.
    if !request.tools().is_empty() {
        items.tools(request, PROTOCOL, |items| {
            items.item_with(|out| {
                let mut json = Object::new(out);
                json.field_with("functionDeclarations", |out| {
                    json::array(out, request.tools(), |tool, out| function(tool, out))
                })?;
                json.end()
            })
        })?;
    }
    for tool in more.unwrap_or_default() {
        items.item(tool)?;
    }
    Ok(())
}

fn function(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(tool.provider()));
    json.field("name", tool.name())?;
    json.field("description", tool.description())?;
    json.field("parametersJsonSchema", tool.parameters())?;
    json.end()
}
