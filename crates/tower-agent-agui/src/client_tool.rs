//! Tools that the client executes itself.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tower::service_fn;

use crate::wire::{InputError, Tool as Declared};
use tower_agent::Request;
use tower_agent::agent::{Agent, AgentService, Explained, Explanation};
use tower_agent::error::{Error, Interrupt, Result};
use tower_agent::tool::{Tool, ToolDeclaration, ToolRequest, ToolResponse, ToolSet};

/// The interrupt reason of a run that waits for a client tool.
pub(super) const REASON: &str = "client_tool";

/// The names of the agent's own tools, which are none for the client's. Nothing is known of an
/// agent inside layers: there the run fails.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnTools(Arc<HashSet<String>>);

impl OwnTools {
    pub(super) fn of<A: AgentService>(agent: &A) -> Self {
        let any: &dyn Any = agent;
        let mut names = HashSet::new();
        if let Some(agent) = any.downcast_ref::<Agent>() {
            add_names(agent.explain(), &mut names);
        }
        Self(Arc::new(names))
    }
}

/// Adds the names of the tools of all agents that have the client's tools, too.
fn add_names(agent: &Explanation, names: &mut HashSet<String>) {
    let inner = match &agent.body {
        Explained::Loop {
            tools, sub_agents, ..
        } => {
            names.extend(tools.iter().map(|tool| tool.name.clone()));
            sub_agents
        }
        Explained::Team { members, .. } => members,
        _ => return,
    };
    for agent in inner {
        add_names(agent, names);
    }
}

/// Returns why the client may not have a tool of this name.
pub(super) fn taken(name: &str) -> String {
    format!("the server has a tool named `{name}`: give the client's tool another name")
}

/// Returns the client's tools as tools of the run. A call of one ends the run, which then waits for
/// the client's result.
pub(super) fn tools(declared: &[Declared], own: &OwnTools) -> Result<ToolSet, InputError> {
    let mut tools = ToolSet::new();
    for (index, tool) in declared.iter().enumerate() {
        if own.0.contains(&*tool.name) {
            let path = format!("tools[{index}].name");
            return Err(InputError::new(path, taken(&tool.name)));
        }
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
