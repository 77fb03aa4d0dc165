//! An agent that does arithmetic, without a key or a network.
//!
//! ```text
//! cargo run --example quickstart -- "what is 12.5% of 840, plus 17?"
//! cargo run --example quickstart -- "delete everything"
//! cargo run --example quickstart -- --explain
//! ```
//!
//! The response is on stdout, the output of the callbacks on stderr. The model is a stand-in that
//! knows these two requests (`script.rs`). With `MODEL=openai:gpt-4o-mini`, or another provider and
//! model, it is that model; keys and servers are those of
//! [`Providers::from_env`](tower_agent_providers::Providers::from_env).

mod callbacks;
mod script;
mod server;
mod tools;

use std::io::{Write, stdout};
use std::process::ExitCode;

use futures::StreamExt;
use tower_agent::agent::BuildError;
use tower_agent::model::ModelService;
use tower_agent::stream::EventKind;
use tower_agent::{Agent, BoxError, RunStream};

use self::callbacks::{Log, Stopwatch, TokenCount, forbid};
use self::script::Script;
use self::tools::tools;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n[error]  {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let question = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let agent = match server::model()? {
        Some(model) => calculator(model)?,
        None => calculator(Script)?,
    };
    match &*question {
        "--explain" => print!("{}", agent.explain()),
        "" => ask(&agent, "what is 12.5% of 840, plus 17?").await?,
        question => ask(&agent, question).await?,
    }
    Ok(())
}

/// Builds the agent, with any model.
fn calculator(model: impl ModelService) -> Result<Agent, BuildError> {
    Agent::builder(model)
        .name("calculator")
        .instructions("Do all arithmetic with the tools. Answer in one sentence.")
        .tools(tools())
        .max_iterations(100)
        .on_agent(Log)
        .on_model(Log)
        .on_model(TokenCount::default())
        .on_tool(Log)
        .on_tool(Stopwatch)
        .on_tool(forbid("delete_all_records"))
        .build()
}

/// Prints the streamed response.
async fn ask(agent: &Agent, question: &str) -> Result<(), BoxError> {
    let mut run = agent.stream(question);
    print(&mut run).await;
    let response = run.response().await?;
    eprintln!(
        "\n[end]    {:?} after {} turns, {} tokens",
        response.end_reason(),
        response.iterations(),
        response.usage().total(),
    );
    println!();
    Ok(())
}

async fn print(run: &mut RunStream) {
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::TextStart { .. } => eprintln!(),
            EventKind::TextDelta { text, .. } => print!("{text}"),
            EventKind::TextEnd { .. } => println!(),
            EventKind::AttemptDiscarded { .. } | EventKind::ResponseReplaced { .. } => {
                println!("(discarded)");
            }
            _ => {}
        }
        stdout().flush().ok();
    }
}
