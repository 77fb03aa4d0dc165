//! A console with much in it: a run of 5,000 events with 50 MB of texts, one as long that goes on
//! with 100 events a second, and 10,000 runs in SQLite.
//!
//! ```text
//! cargo run -p console --bin console-long
//! ```
//!
//! `long.mjs` of the front end's tests looks at it in a browser, and says how long that takes.
//! `RUNS` sets another number of runs in the database.

#[path = "../agui_server/port.rs"]
mod port;
#[path = "../shop/terminated.rs"]
mod terminated;

use std::env;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use serde_json::json;
use tokio::net::TcpListener;
use tower_agent::message::ToolCall;
use tower_agent::{Agent, AgentRequest, BoxError, ModelResponse, Tool};
use tower_agent_console::{Console, Operator, RunStore, StoredQuery, StoredRun};
use tower_agent_durable::Sqlite;
use tower_agent_test::{ScriptedModel, Turn};

/// The turns of a long run. Each has three entries: itself, a model call and a call of a tool.
const TURNS: u32 = 1_667;

/// The length of what a tool answers. A run has it twice: as a result, and in the next model call.
const ANSWER: usize = 15_000;

/// The time between two turns of the run that goes on.
const PACE: Duration = Duration::from_millis(30);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let terminated = terminated::terminated()?;
    let console = Console::new().record_content().max_bytes(1 << 30);
    reader(&console, "long")
        .max_iterations(TURNS + 1)
        .build()?
        .run(AgentRequest::new(TURNS.to_string()).with_run_id("long"))
        .await?;
    let live = reader(&console, "live").max_iterations(u32::MAX).build()?;
    tokio::spawn(live.run(AgentRequest::new("?").with_run_id("live")));

    let many = Console::new().stored_in(many().await?);
    let developer = || Operator::new("developer").sees_content().sees_users();
    let app = Router::new()
        .nest_service("/many", many.into_local_service(developer()))
        .nest_service("/console", console.clone().into_local_service(developer()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::port()?)).await?;
    println!("http://{}/console", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            terminated.await;
            console.close();
        })
        .await?;
    Ok(())
}

/// An agent that reads pages, as many as it is asked for. Without a number it does not end, and
/// takes its time once it has read as many as the other one.
fn reader(console: &Console, name: &str) -> tower_agent::AgentBuilder {
    let model = ScriptedModel::always(Turn::function(|request| {
        let asked = request.messages().get(0).map(|first| first.text());
        let pages: Option<usize> = asked.and_then(|pages| pages.parse().ok());
        let read = request.messages().len() / 2;
        if Some(read) == pages {
            return Ok(ModelResponse::from_text("That was the last page."));
        }
        let arguments = json!({ "page": read });
        let call = ToolCall::new(format!("page {read}"), "read_page", arguments);
        Ok(ModelResponse::from_tool_calls([call]))
    }));
    let goes_on = name == "live";
    let seen_by = console.clone();
    let read_page = Tool::function("read_page", "Reads a page.", move |asked: Page| {
        let console = seen_by.clone();
        async move {
            // A run that is faster than the console leaves texts out, which has a bound for what it
            // has not looked at: it looks after each page.
            console.flush().await;
            if goes_on && asked.page > TURNS {
                tokio::time::sleep(PACE).await;
            }
            let begin = format!("Page {}. ", asked.page);
            begin + &"All work and no play. ".repeat(ANSWER / 22)
        }
    });
    Agent::builder(model)
        .name(name)
        .tool(read_page)
        .global_callbacks(console.watch())
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    page: u32,
}

/// A database with many runs.
async fn many() -> Result<Sqlite, BoxError> {
    let database = Sqlite::in_memory().await?;
    let console = Console::new().stored_in(database.clone());
    let agent = reader(&console, "short").build()?;
    agent.run("20").await?;
    console.flush().await;
    let query = StoredQuery {
        limit: 1,
        ..StoredQuery::default()
    };
    let Some(head) = database.list(&query).await?.pop() else {
        return Ok(database);
    };
    let entries = database.entries(&head.key, 0, u32::MAX, true).await?;
    let runs = env::var("RUNS").ok().and_then(|runs| runs.parse().ok());
    for number in 1..runs.unwrap_or(10_000) {
        let mut head = head.clone();
        head.key.console = "another".to_owned();
        head.key.number = number;
        head.begun -= number * 1_000_000;
        let run = StoredRun {
            is_new: true,
            head,
            bytes: 0,
            entries: entries.clone(),
        };
        database.put(run).await?;
    }
    Ok(database)
}
