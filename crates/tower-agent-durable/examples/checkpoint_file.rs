//! A conversation that the program keeps itself: one checkpoint in one file.
//!
//! `cargo run --example checkpoint_file`
//!
//! Enough for one user and one process, such as a tool on a command line.

use std::path::Path;

use serde_json::json;
use tower_agent::{Agent, AgentRequest, BoxError, Checkpoint, Resolution, Tool};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

fn agent(turns: Vec<Turn>) -> Result<Agent, BoxError> {
    let refund = Tool::function("refund", "Refunds an order.", |order: String| {
        format!("order {order} is refunded")
    });
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(refund);
    Ok(agent.on_tool(Approval::of_tools(["refund"])).build()?)
}

fn load(file: &Path) -> Result<Checkpoint, BoxError> {
    if file.exists() {
        Ok(serde_json::from_slice(&std::fs::read(file)?)?)
    } else {
        Ok(Checkpoint::default())
    }
}

/// Replaces the file at once, so that a crash leaves the old one or the new one.
fn save(file: &Path, checkpoint: &Checkpoint) -> Result<(), BoxError> {
    let new = file.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(checkpoint)?)?;
    Ok(std::fs::rename(new, file)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let file = std::env::temp_dir().join(format!("conversation-{}.json", std::process::id()));

    // The first process asks for an approval.
    let agent_1 = agent(vec![Turn::tool("refund", json!({ "value": "A7" }))])?;
    let request = AgentRequest::resume(load(&file)?).with_message("Refund order A7.");
    match agent_1.run(request).await {
        Ok(response) => save(&file, &response.checkpoint())?,
        // A run that fails has done something, too.
        Err(error) => save(&file, error.checkpoint().unwrap_or(&Checkpoint::default()))?,
    }

    // Another process answers.
    let agent_2 = agent(vec![Turn::from_text("Your refund is on its way.")])?;
    let checkpoint = load(&file)?;
    let open = checkpoint.head.interrupts.clone();
    let yes = open
        .iter()
        .map(|interrupt| Resolution::resolved(&interrupt.id, Decision::Approve));
    let response = agent_2
        .run(AgentRequest::resume(checkpoint).with_resolutions(yes))
        .await?;
    save(&file, &response.checkpoint())?;
    println!("{}", response.text());
    assert_eq!(load(&file)?.messages.len(), 4);
    std::fs::remove_file(&file)?;
    Ok(())
}
