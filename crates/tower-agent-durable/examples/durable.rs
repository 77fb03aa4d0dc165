//! A run that outlives its process.
//!
//! ```sh
//! cargo run --example durable -- crash   # dies while it pays
//! cargo run --example durable -- list    # the run, and its steps
//! cargo run --example durable            # goes on, and asks whether it was paid
//! cargo run --example durable -- paid    # goes on: it was; or `again`: it was not
//! cargo run --example durable -- delete
//! ```

use serde_json::{Value, json};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, ModelRequest, ModelResponse, Resolution, Tool,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{Durable, JournalError, RunQuery, UnfinishedStep};

const RUN: &str = "invoice 7";

/// A real model takes its place; this one looks, pays and reports.
async fn model(request: ModelRequest) -> Result<ModelResponse, BoxError> {
    println!("the model is called");
    let results = request
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .count();
    Ok(match results {
        0 => ModelResponse::from_tool_calls([ToolCall::new("1", "look_up", json!({}))]),
        1 => ModelResponse::from_tool_calls([ToolCall::new("2", "pay", json!({ "amount": 100 }))]),
        _ => ModelResponse::from_text("The invoice is paid."),
    })
}

fn agent(database: &Sqlite, crashes: bool) -> Result<Agent, BoxError> {
    let look_up = Tool::function("look_up", "Looks up the invoice.", |_: Value| {
        println!("looking it up");
        "100, due today"
    });
    // If the bank took an idempotency key, this tool could be `Idempotent`, and nobody would be
    // asked.
    let pay = Tool::function("pay", "Pays an amount.", move |_: Value| {
        println!("paying");
        if crashes {
            std::process::abort();
        }
        "paid"
    });
    let agent = Agent::builder(tower::service_fn(model))
        .name("clerk")
        .tool(look_up.effect(Effect::Pure))
        .tool(pay)
        .global_callbacks(Durable::new(database.clone()))
        .build()?;
    Ok(agent)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let database = Sqlite::open(std::env::temp_dir().join("tower-agent-durable.db")).await?;
    let runs = database.runs();
    let command = std::env::args().nth(1).unwrap_or_default();
    let answer = match &*command {
        "list" => {
            for run in runs.list(&RunQuery::new()).await? {
                println!("{} of {}: {}", run.id, run.agent, run.status);
                for step in runs.steps(&run).await? {
                    let state = if step.ended_at.is_some() {
                        "done"
                    } else {
                        "unfinished"
                    };
                    println!("  {}: {state}", step.id);
                }
            }
            return Ok(());
        }
        "delete" => return Ok(runs.delete(RUN).await?),
        "paid" => Some(UnfinishedStep::Done("paid".into())),
        "again" => Some(UnfinishedStep::RunAgain),
        _ => None,
    };

    let request = match runs.get(RUN).await {
        Ok(run) => {
            let answers = run.interrupts.iter().zip(answer);
            let answers =
                answers.map(|(interrupt, answer)| Resolution::resolved(&interrupt.id, answer));
            runs.request(RUN).await?.with_resolutions(answers)
        }
        Err(JournalError::UnknownRun { .. }) => {
            AgentRequest::new("Pay invoice 7.").with_run_id(RUN)
        }
        Err(error) => return Err(error.into()),
    };
    let response = agent(&database, command == "crash")?.run(request).await?;
    for interrupt in response.interrupts() {
        println!(
            "{}? {}",
            interrupt.message.as_deref().unwrap_or_default(),
            interrupt.payload
        );
    }
    println!("{}", response.text());
    Ok(())
}
