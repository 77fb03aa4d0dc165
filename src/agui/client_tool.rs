//! Tools that the front end runs itself.

use serde_json::Value;
use tower::service_fn;

use super::Tool as Declared;
use crate::error::{Error, Pending, Result};
use crate::request::Request;
use crate::tool::{DuplicateTool, Tool, ToolDeclaration, ToolRequest, ToolResponse, ToolSet};

/// Why a run waits that a front end's own tool was called in.
pub(super) const REASON: &str = "client_tool";

/// The front end's tools, as tools of the run: a call of one ends the run, and waits for the
/// front end's answer.
pub(super) fn tools(declared: &[Declared]) -> Result<ToolSet, DuplicateTool> {
    let mut tools = ToolSet::new();
    for tool in declared {
        let mut declaration = ToolDeclaration::new(tool.name.clone(), tool.description.clone());
        if let Some(parameters @ Value::Object(_)) = &tool.parameters {
            declaration = declaration.with_parameters(parameters.clone());
        }
        tools.insert(Tool::service(declaration, service_fn(wait)))?;
    }
    Ok(tools)
}

async fn wait(request: ToolRequest) -> Result<ToolResponse> {
    let id = request.context().tool_call_id().unwrap_or_else(|| request.id());
    Err(Error::interrupt(Pending::new(id, REASON)))
}
