//! tower's own layers around the model and around one tool: they know nothing about agents.
//!
//! A streamed or slow response is still one call, so `timeout` limits the whole of it,
//! `concurrency_limit` holds its permit to the end and `retry` sees the real outcome.
//!
//! Needs tower's features `limit`, `load-shed`, `retry` and `timeout`.

use std::future::{Ready, ready};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower_agent::callback::before_model;
use tower_agent::{Agent, BoxError, Error, ErrorKind, Message, Request, Tool};
use tower_agent_test::{ScriptedModel, Turn};

/// Retries calls whose errors are retryable.
#[derive(Clone, Copy, Debug)]
struct Again {
    left: u32,
}

impl<R: Request> Policy<R, R::Response, Error> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<R::Response, Error>) -> Option<Ready<()>> {
        let error = result.as_ref().err().filter(|error| error.is_retryable())?;
        self.left = self.left.checked_sub(1)?;
        println!("retry:  {error}");
        // A policy for a real provider waits here, with a backoff or for `error.retry_after()`.
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// The text to look for.
    query: String,
}

/// The archive is slow, and hangs on one query.
async fn search(Search { query }: Search) -> String {
    let pause = if query == "unicorns" {
        Duration::MAX
    } else {
        Duration::from_millis(10)
    };
    tokio::time::sleep(pause).await;
    format!("3 books on {query}")
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let search = Tool::function("search", "Searches the archive.", search)
        .layer(LoadShedLayer::new()) // refuses at once what the limit would let wait
        .layer(ConcurrencyLimitLayer::new(2))
        .layer(TimeoutLayer::new(Duration::from_millis(30)));

    let down = Error::new(ErrorKind::Provider, "the model is being restarted");
    let model = ScriptedModel::new([
        Turn::error(down.clone()),
        Turn::error(down),
        Turn::tool("search", json!({ "query": "rust" }))
            .and_tool("search", json!({ "query": "unicorns" }))
            .and_tool("search", json!({ "query": "towers" })),
        Turn::from_text("We have three books on Rust. Ask again for the rest."),
        Turn::from_text("At nine.").latency(Duration::from_millis(5)),
    ]);

    let agent = Agent::builder(model)
        .tool(search)
        .model_layer(LoadShedLayer::new())
        .model_layer(ConcurrencyLimitLayer::new(1)) // a call keeps its permit while it is retried
        .on_model(before_model(|_| println!("model:  a call")).named("per call"))
        .model_layer(RetryLayer::new(Again { left: 2 }))
        .on_model(before_model(|_| println!("model:    an attempt")).named("per attempt"))
        .model_layer(TimeoutLayer::new(Duration::from_millis(50))) // for each attempt
        .build()?;
    println!("{}", agent.explain());

    println!("-- The model fails twice; one search answers, one times out, one is shed.");
    let response = agent.run("What do you have?").await?;
    for result in response.new_messages().flat_map(Message::tool_results) {
        println!("result: {}", result.text());
    }
    println!("answer: {}", response.text());

    println!("-- Two runs at once on a model that serves one: the other is shed.");
    let (one, other) = tokio::join!(agent.run("When do you open?"), agent.run("And close?"));
    for result in [one, other] {
        match result {
            Ok(response) => println!("answer: {}", response.text()),
            Err(error) => println!("error:  {error}"),
        }
    }
    Ok(())
}
