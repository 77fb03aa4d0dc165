//! Tools that the client executes itself.

use serde_json::Value;
use tower::service_fn;

use crate::wire::{InputError, Tool as Declared};
use tower_agent::Request;
use tower_agent::error::{Error, Interrupt, Result};
use tower_agent::tool::{Tool, ToolDeclaration, ToolRequest, ToolResponse, ToolSet};

/// The interrupt reason of a run that waits for a client tool.
pub(super) const REASON: &str = "client_tool";

/// Returns the client's tools as tools of the run. A call of one ends the run, which then waits for
/// the client's result.
pub(super) fn tools(declared: &[Declared]) -> Result<ToolSet, InputError> {
    let mut tools = ToolSet::new();
    for (index, tool) in declared.iter().enumerate() {
        let mut declaration =
            ToolDeclaration::new(tool.name.clone(), tool.description.clone()).described_by_others();
        match &tool.parameters {
            None | Some(Value::Null) => {}
            Some(Value::Object(parameters)) => {
                let mut parameters = parameters.clone();
                // Clients may omit it; another type is rejected below.
                parameters.entry("type").or_insert_with(|| "object".into());
                declaration = declaration.with_parameters(parameters.into());
            }
            Some(_) => {
                let path = format!("tools[{index}].parameters");
                let message = "the schema of the arguments must be an object";
                return Err(InputError::new(path, message));
            }
        }
        tools
            .insert(Tool::service(declaration, service_fn(interrupt)))
            .map_err(|error| InputError::new("tools", error))?;
    }
    Ok(tools)
}

/// Interrupts the run, since only the client can execute the tool.
async fn interrupt(request: ToolRequest) -> Result<ToolResponse> {
    let id = request
        .context()
        .tool_call_id()
        .unwrap_or_else(|| request.id());
    Err(Error::interrupt(Interrupt::new(id, REASON)))
}
