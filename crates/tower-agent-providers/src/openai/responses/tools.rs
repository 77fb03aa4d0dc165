use serde::Serialize;
use serde_json::{Value, json};

use super::provider::{PROTOCOL, added};
use super::strict::is_strict;
use crate::json::{self, Object};
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{ModelRequest, ServerToolKind, ToolChoice};
use tower_agent::tool::ToolDeclaration;

pub(super) fn tools(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    request.write_tools(PROTOCOL, out, |out| {
        json::array(out, request.tools(), |declaration, out| {
            tool(declaration, out)
        })
    })
}

/// Returns a tool of the server.
pub(super) fn server_tool(kind: ServerToolKind) -> Option<Value> {
    match kind {
        ServerToolKind::WebSearch => Some(json!({ "type": "web_search" })),
        ServerToolKind::CodeExecution => {
            Some(json!({ "type": "code_interpreter", "container": { "type": "auto" } }))
        }
        _ => None,
    }
}

fn tool(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let own = added(tool.provider());
    let kind = own.and_then(|own| own.get("type"));
    let mut json = Object::with_extra(out, own);
    if kind.is_none_or(|kind| kind == "function") {
        json.field("type", "function")?;
        json.field("name", tool.name())?;
        json.field("description", tool.description())?;
        json.field("parameters", tool.parameters())?;
        // A server that is not told assumes that it is, and changes the schema.
        json.field("strict", is_strict(tool.parameters()))?;
    }
    json.end_with_nulls()
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ResponsesToolChoice<'a> {
    Word(&'static str),
    Tool { r#type: &'static str, name: &'a str },
}

pub(super) fn choice(choice: &ToolChoice) -> Result<ResponsesToolChoice<'_>> {
    Ok(match choice {
        ToolChoice::Auto => ResponsesToolChoice::Word("auto"),
        ToolChoice::None => ResponsesToolChoice::Word("none"),
        ToolChoice::Required => ResponsesToolChoice::Word("required"),
        ToolChoice::Tool(name) => ResponsesToolChoice::Tool {
            r#type: "function",
            name,
        },
        _ => return Err(unsupported("tool choice")),
    })
}
