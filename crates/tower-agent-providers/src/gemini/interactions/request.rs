use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::extra::without;
use super::super::instructions::instructions;
use super::super::model::is_before_3;
use super::input::input;
use super::provider::{PROTOCOL, added};
use super::settings::{generation_config, response_format};
use crate::json::{Items, Object};
use crate::protocol::{Call, unsupported};
use tower_agent::error::Result;
use tower_agent::model::{ModelRequest, Settings};
use tower_agent::tool::ToolDeclaration;

/// Writes the body of a call.
///
/// The input comes first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, out: &mut Vec<u8>) -> Result<()> {
    let request = call.request();
    let settings = request.settings();
    let model = call.require_model()?;
    let has_tools = !request.tools().is_empty();
    if settings.parallel_tool_calls == Some(false) && has_tools {
        return Err(unsupported("setting as `parallel_tool_calls: false`"));
    }
    let extra = InteractionExtra::of(settings);
    let mut json = Object::with_extra(out, &*extra.others);
    json.array("input", |items| input(request, !is_before_3(model), items))?;
    json.field("model", model)?;
    // Nothing is kept by the server, so that each request says all.
    json.field("store", false)?;
    let instructions = instructions(request)?;
    if !instructions.is_empty() {
        json.field("system_instruction", instructions.join("\n\n"))?;
    }
    if has_tools || extra.tools.is_some() {
        json.array("tools", |items| tools(request, extra.tools, items))?;
    }
    let mut config = Vec::new();
    generation_config(settings, has_tools, extra.generation_config, &mut config)?;
    if config != b"{}" {
        json.field_with("generation_config", |out| {
            out.extend_from_slice(&config);
            Ok(())
        })?;
    }
    let format = settings
        .response_format
        .as_ref()
        .map(response_format)
        .transpose()?;
    json.optional("response_format", format)?;
    // Said either way: some servers stream by default.
    json.field("stream", call.is_streamed())?;
    json.end()
}

/// The extra fields of the settings, without those that are merged with ours.
struct InteractionExtra<'a> {
    others: Cow<'a, Map<String, Value>>,
    generation_config: Option<&'a Map<String, Value>>,
    tools: Option<&'a [Value]>,
}

impl<'a> InteractionExtra<'a> {
    fn of(settings: &'a Settings) -> Self {
        let extra = &settings.extra;
        let generation_config = extra.get("generation_config").and_then(Value::as_object);
        let tools = extra
            .get("tools")
            .and_then(Value::as_array)
            .map(Vec::as_slice);
        let merged = [
            ("generation_config", generation_config.is_some()),
            ("tools", tools.is_some()),
        ];
        Self {
            others: without(extra, &merged),
            generation_config,
            tools,
        }
    }
}

fn tools(request: &ModelRequest, more: Option<&[Value]>, items: &mut Items<'_>) -> Result<()> {
    items.tools(request, PROTOCOL, |items| {
        for tool in request.tools() {
            items.item_with(|out| function(tool, out))?;
        }
        Ok(())
    })?;
    for tool in more.unwrap_or_default() {
        items.item(tool)?;
    }
    Ok(())
}

fn function(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(tool.provider()));
    json.field("type", "function")?;
    json.field("name", tool.name())?;
    json.field("description", tool.description())?;
    json.field("parameters", tool.parameters())?;
    json.end()
}
