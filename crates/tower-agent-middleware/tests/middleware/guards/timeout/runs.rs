//! The stream of a run with a call that took too long.

use futures::StreamExt;
use serde_json::json;
use tokio::time::Instant;
use tower_agent::stream::{Delta, EventKind};
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, ModelResponse};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ScriptedModel, Turn};

use super::{SECOND, strict};
use crate::guards::watch::{count, left, ms, read, read_events, shown};

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
async fn the_text_of_an_agent_that_took_too_long_as_a_tool_is_taken_back() {
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

#[tokio::test(start_paused = true)]
async fn a_timeout_of_50_ms_ends_a_stream_that_takes_500_ms() {
    let model = tower::service_fn(|request: ModelRequest| async move {
        let mut attempt = request.delta_sender().expect("it is streamed").open();
        for _ in 0..10 {
            attempt.send(Delta::Text("word ".into())).await?;
            tokio::time::sleep(ms(50)).await;
        }
        Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
    });
    let ours = tower_agent_middleware::timeout::CallTimeoutLayer::new(ms(50));
    let towers = tower::timeout::TimeoutLayer::new(ms(50));
    let agents = [
        Agent::builder(model).model_layer(ours).build().unwrap(),
        Agent::builder(model).model_layer(towers).build().unwrap(),
    ];
    for agent in agents {
        let start = Instant::now();
        let (events, response) = read_events(&agent).await;
        assert_eq!(response.unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(start.elapsed(), ms(50));
        assert!(shown(&events).starts_with("word "));
        assert_eq!(
            count(&events, |kind| matches!(
                kind,
                EventKind::AttemptDiscarded { .. }
            )),
            1
        );
    }
}
