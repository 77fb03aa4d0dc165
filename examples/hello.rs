//! An agent with one tool. A script plays the model, so that no key is needed.

use serde_json::json;
use tower_agent::callback::after_tool;
use tower_agent::{Agent, BoxError, Tool};
use tower_agent_test::{ScriptedModel, Turn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let model = ScriptedModel::new([
        Turn::tool("add", json!([17, 25])),
        Turn::from_text("17 and 25 are 42."),
    ]);
    let add = Tool::function("add", "Adds two numbers.", |(a, b): (i64, i64)| a + b);
    let agent = Agent::builder(model)
        .tool(add)
        .on_tool(after_tool(|_, sum| println!("tool: {}", sum.value())))
        .build()?;
    println!("model: {}", agent.run("What is 17 + 25?").await?.text());
    Ok(())
}
