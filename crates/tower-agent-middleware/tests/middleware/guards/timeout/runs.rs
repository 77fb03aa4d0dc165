//! What a watched run shows of a call that took too long.

use futures::StreamExt;
use serde_json::json;
use tower_agent::Agent;
use tower_agent::stream::EventKind;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;

use super::{SECOND, strict};
use crate::guards::watch::{left, read};

#[tokio::test(start_paused = true)]
async fn half_an_answer_that_took_too_long_is_taken_back() {
    let model = ScriptedModel::new([
        Turn::from_text("Hello world").hanging_after(1),
        Turn::from_text("Hello world"),
    ]);
    let agent = Agent::builder(model.chunk_size(6))
        .model_layer(CallRetryLayer::new().restart_streams(true))
        .model_layer(strict())
        .build()
        .unwrap();

    let (left, response) = read(&agent).await;

    assert_eq!(
        (left, response.unwrap().text()),
        (vec!["Hello world".into()], "Hello world".into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_took_too_long_in_the_middle_of_an_answer_takes_it_back() {
    let model = ScriptedModel::new([
        Turn::from_text("Hello world").hanging_after(1),
        Turn::from_text("Hello world"),
    ]);
    let agent = Agent::builder(model.chunk_size(6))
        .agent_layer(CallRetryLayer::new().restart_streams(true))
        .agent_layer(CallTimeoutLayer::new(SECOND))
        .build()
        .unwrap();

    let (left, response) = read(&agent).await;

    assert_eq!(
        (left, response.unwrap().text()),
        (vec!["Hello world".into()], "Hello world".into())
    );
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_said_that_took_too_long_as_a_tool_is_taken_back() {
    let helper = ScriptedModel::new([Turn::from_text("Hello world").hanging_after(1)]);
    let helper = Agent::builder(helper).name("helper").build().unwrap();
    let model = ScriptedModel::new([
        Turn::tool("helper", json!({ "request": "?" })),
        Turn::from_text("Sorry."),
    ]);
    let agent = Agent::builder(model)
        .tool(helper.into_tool("Helps."))
        .tool_layer(CallTimeoutLayer::new(SECOND))
        .build()
        .unwrap();

    let mut run = agent.stream("?");
    let events: Vec<_> = run.by_ref().collect().await;

    assert_eq!(left(&events), ["Sorry."]);
    let starts = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::TextStart { .. }))
        .count();
    let ends = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::TextEnd { .. }))
        .count();
    assert_eq!((starts, ends), (2, 2));
}
