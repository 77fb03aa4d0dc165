//! A team of agents: a writer, then two critics at the same time, then an editor.
//!
//! `cargo run --example team`

use tower_agent::agent::BuildError;
use tower_agent::callback::before_agent;
use tower_agent::{Agent, BoxError};
use tower_agent_test::{ScriptedModel, Turn};

/// Builds a member that says one thing, and prints its name when it begins.
fn member(name: &'static str, answer: &str) -> Result<Agent, BuildError> {
    let model = ScriptedModel::always(Turn::from_text(answer));
    Agent::builder(model)
        .name(name)
        .on_agent(before_agent(move |_| println!("> {name}")))
        .build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // A team is an agent, and so may be a member of another team.
    let critics = Agent::parallel("critics")
        .agent(member("style", "The second sentence is too long.")?)
        .agent(member("facts", "Everything in it is true.")?)
        .build()?;
    let essay = Agent::sequential("essay")
        .agent(member("writer", "A draft about lighthouses.")?)
        .agent(critics)
        .agent(member("editor", "A short essay about lighthouses.")?)
        .build()?;
    println!("{}", essay.explain());

    let response = essay.run("Write about lighthouses.").await?;
    for message in response.new_messages() {
        println!("- {}", message.text());
    }
    Ok(())
}
