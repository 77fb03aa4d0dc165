//! The tools with which a model finds others.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::context::RunContext;
use tower_agent::tool::{Tool, ToolDeclaration, ToolRequest, ToolResponse};

use super::index::Index;
use crate::flow::note_described;
use crate::own_tool::{SEARCH_TOOLS, load_declaration, own_tool, search_declaration};

/// The key of the tools that an agent has loaded.
const LOADED: &str = "tool_search";

/// The key of the tools that something has taken out of the agent's requests.
const MISSING: &str = "tool_search missing";

/// The arguments of the tool that searches.
#[derive(Deserialize)]
struct SearchArguments {
    query: String,
}

/// The arguments of the tool that loads.
#[derive(Deserialize)]
struct LoadArguments {
    names: Vec<String>,
}

/// Returns the tool that searches.
pub(super) fn search(index: Arc<Index>) -> Tool {
    own_tool(
        search_declaration(),
        move |SearchArguments { query }, request| found(&index, &query, request),
    )
}

fn found(index: &Index, query: &str, request: &ToolRequest) -> ToolResponse {
    let missing = missing(request.context());
    let is_there = |tool: &&ToolDeclaration| !missing.iter().any(|name| name == tool.name());
    let found = index.search(query, is_there);
    note_described(request, found.iter().copied());
    if found.is_empty() {
        return ToolResponse::new("No tool matches these words.");
    }
    let described = found
        .into_iter()
        .map(|tool| json!({ "name": tool.name(), "description": tool.description() }));
    ToolResponse::new(Value::Array(described.collect()))
}

/// Returns the tool that declares others.
pub(super) fn load(index: Arc<Index>) -> Tool {
    own_tool(
        load_declaration(),
        move |LoadArguments { names }, request| declare(&index, names, request.context()),
    )
}

fn declare(index: &Index, names: Vec<String>, context: &RunContext) -> ToolResponse {
    let missing = missing(context);
    let is_there = |name: &String| index.contains(name) && !missing.contains(name);
    let (known, unknown): (Vec<_>, Vec<_>) = names.into_iter().partition(is_there);
    let declared = known.join(", ");
    context
        .private_state()
        .update(key(context, LOADED), |loaded| {
            let mut all = names_in(loaded);
            // Two calls of a turn load one after the other.
            for name in known {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            *loaded = json!(all);
        });
    if unknown.is_empty() {
        return ToolResponse::new(format!("declared: {declared}"));
    }
    ToolResponse::error(format!(
        "declared: {declared}; there are no tools named {}: search with `{SEARCH_TOOLS}`",
        unknown.join(", ")
    ))
}

/// Returns the names of the tools that an agent has loaded, in this order.
pub(super) fn loaded(context: &RunContext) -> Vec<String> {
    kept(context, LOADED)
}

/// Notes which tools of the search an agent's model was not sent, because something outside has
/// taken them out: they are not found either.
pub(super) fn note_missing(context: &RunContext, names: Vec<String>) {
    // Usually there are none, and there were none.
    if names != missing(context) {
        context
            .private_state()
            .set(key(context, MISSING), json!(names));
    }
}

fn missing(context: &RunContext) -> Vec<String> {
    kept(context, MISSING)
}

fn kept(context: &RunContext, what: &str) -> Vec<String> {
    let private = context.private_state();
    private.read(&key(context, what), |names| {
        names.map_or_else(Vec::new, names_in)
    })
}

fn names_in(loaded: &Value) -> Vec<String> {
    // A list that cannot be read is loaded again.
    Vec::deserialize(loaded).unwrap_or_default()
}

/// Returns the key in the private state for an agent, whose tools are called with the same path. It
/// is forgotten with the tool call that the agent works in.
fn key(context: &RunContext, what: &str) -> String {
    let name = format!("tower_agent_middleware::{what}/{}", context.path());
    context.outer_call_key(&name).unwrap_or(name)
}
