//! Callbacks as in trpc-agent-go: its page, sentence by sentence.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod agent;
mod chains;
mod invocation;
mod lists;
mod messages;
mod model;
mod panics;
mod parallel;
mod plugins;
mod retries;
mod stop;
mod teams;
mod tool;

use serde_json::{Value, json};
use tower_agent::compat::{CallbackSemantics, Semantics};
use tower_agent::message::ToolResult;
use tower_agent::model::ModelService;
use tower_agent::{Agent, AgentBuilder, AgentResponse, Message, Tool};
use tower_agent_test::{ScriptedModel, Turn};

/// An agent that does as trpc-agent-go does without options.
fn agent(model: impl ModelService) -> AgentBuilder {
    Agent::builder(model).semantics(Semantics::trpc())
}

/// The same with the two options of a chain.
fn with_options(continue_on_error: bool, continue_on_response: bool) -> Semantics {
    let mut semantics = Semantics::trpc();
    semantics.band = CallbackSemantics::trpc(continue_on_error, continue_on_response);
    semantics
}

/// Calls `act` once, then says `done`.
fn acts_once() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("act", json!({ "n": 1 })),
        Turn::from_text("done"),
    ])
}

/// A tool that answers with its arguments.
fn act() -> Tool {
    Tool::function("act", "Acts.", |arguments: Value| arguments)
}

fn failing_act() -> Tool {
    Tool::function("act", "Acts.", |_: Value| Err::<Value, _>("disk full"))
}

/// The tool results that the model has read.
fn told(response: &AgentResponse) -> Vec<ToolResult> {
    response
        .new_messages()
        .flat_map(Message::tool_results)
        .cloned()
        .collect()
}

fn texts(results: &[ToolResult]) -> Vec<String> {
    results.iter().map(ToolResult::text).collect()
}
