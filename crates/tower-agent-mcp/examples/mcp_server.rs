//! An agent and a tool as an MCP server on standard input and output.
//!
//! A host such as an editor starts it; by hand, it ends with its input: `cargo run --example
//! mcp_server < /dev/null`. The agent pays a bill only after the host's user has approved it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower_agent::{Agent, BoxError, Effect, Tool};
use tower_agent_mcp::server::McpServer;
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // A real model takes its place; this one pays whatever it is asked.
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({ "value": 100 })),
        Turn::from_text("The bill is paid."),
    ]);
    let clerk = Agent::builder(model)
        .name("clerk")
        .description("Pays bills.")
        .tool(Tool::function("pay", "Pays an amount.", |amount: u32| {
            format!("paid {amount}")
        }))
        .on_tool(Approval::of_tools(["pay"]))
        .build()?;
    let add = Tool::function("add", "Adds two numbers.", |Add { a, b }| a + b).effect(Effect::Pure);
    let server = McpServer::builder("office", "1.0.0")
        .agent(clerk)
        .tool(add)
        .build()?;
    Ok(server
        .serve_stdio()
        .await
        .or_else(|error| match error.kind() {
            // Nobody was there.
            tower_agent::ErrorKind::Protocol => Ok(()),
            _ => Err(error),
        })?)
}
