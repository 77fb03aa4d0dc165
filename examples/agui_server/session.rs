//! The session's state: files, which a tool deletes, and results, which a callback stores. The
//! state is passed to each run, and the page shows its changes.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::callback::{after_tool, before_agent};
use tower_agent::{AgentRequest, Callback, Request, State, Tool, ToolRequest, ToolResponse};

/// The number of stored results.
const KEPT: usize = 5;

#[derive(Deserialize, JsonSchema)]
struct DeleteFile {
    /// The file.
    path: String,
}

/// Gives a new session some files.
pub(crate) fn begin() -> impl Callback<AgentRequest> {
    let begin = before_agent(|request| {
        let state = request.context().state();
        if state.get("files").is_none() {
            state.set("files", json!(["notes.txt", "old.txt", "plan.md"]));
        }
    });
    begin.named("begin session")
}

/// Returns a tool that deletes a file for good; register it behind an approval.
pub(crate) fn delete_file() -> Tool {
    Tool::function_with(
        "delete_file",
        "Deletes a file.",
        |DeleteFile { path }, request: ToolRequest| {
            let state = request.context().state();
            let mut files = list(state, "files");
            let Some(place) = files.iter().position(|file| *file == path) else {
                // The tool's own words, which the page may show. It shows no error.
                return ToolResponse::error(format!("there is no {path}"));
            };
            files.remove(place);
            state.set("files", files);
            ToolResponse::new(format!("{path} is deleted"))
        },
    )
}

/// Stores the latest results.
pub(crate) fn keep_results() -> impl Callback<ToolRequest> {
    let keep = after_tool(|request, response| {
        let Some(result) = response.value().as_f64() else {
            return;
        };
        let arguments = request
            .arguments()
            .as_object()
            .into_iter()
            .flat_map(|all| all.values());
        let arguments: Vec<_> = arguments
            .filter_map(Value::as_f64)
            .map(|number| number.to_string())
            .collect();
        let state = request.context().state();
        let mut results = list(state, "results");
        results.push(json!(format!(
            "{}({}) = {result}",
            request.name(),
            arguments.join(", ")
        )));
        state.set(
            "results",
            results.split_off(results.len().saturating_sub(KEPT)),
        );
    });
    keep.named("keep results")
}

fn list(state: &State, key: &str) -> Vec<Value> {
    match state.get(key) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}
