//! Runs, watched and not: what has been seen, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::time::Instant;
use tower_agent::callback::before_model;
use tower_agent::message::ToolCall;
use tower_agent::stream::{Delta, Mapper};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Interrupt, Message, ModelRequest, ModelResponse, Result,
    RunStream,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use super::Part;
use crate::guards::watch::{busy, left, read};
use test_support::call;

fn half() -> Turn {
    Turn::from_text("Hello world").failing_after(1, busy())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_been_seen_in_part_is_not_begun_again() {
    let model = ScriptedModel::new([half(), Turn::from_text("Hello world")]).chunk_size(6);
    let agent = Agent::builder(model.clone())
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();

    let (left, response) = read(&agent).await;

    assert_eq!(model.requests().len(), 1);
    assert_eq!(left, [""; 0]);
    assert_eq!(
        response.unwrap_err().message(),
        "busy (after 1 attempt; not retried: output was already streamed)"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_be_begun_again_is_seen_once() {
    let model = ScriptedModel::new([half(), half(), Turn::from_text("Hello world")]).chunk_size(6);
    let agent = Agent::builder(model.clone())
        .model_layer(CallRetryLayer::new().restart_streams(true))
        .build()
        .unwrap();

    let (left, response) = read(&agent).await;

    model.assert_done();
    assert_eq!(left, ["Hello world"]);
    assert_eq!(response.unwrap().text(), "Hello world");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_call_that_fails_before_it_is_seen_is_made_again() {
    let model = ScriptedModel::new([Turn::error(busy()), Turn::from_text("Hello world")]);
    let agent = Agent::builder(model.clone())
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();

    let (left, response) = read(&agent).await;

    model.assert_done();
    assert_eq!(left, ["Hello world"]);
    assert_eq!(response.unwrap().text(), "Hello world");
}

/// Shows nothing before the end.
#[derive(Default)]
struct Hold(Vec<Delta>);

impl Mapper for Hold {
    fn map(&mut self, delta: Delta, _: &mut Vec<Delta>) -> Result<()> {
        self.0.push(delta);
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Delta>) -> Result<()> {
        out.append(&mut self.0);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn text_that_a_guard_holds_back_has_not_been_seen() {
    let model = ScriptedModel::new([half(), Turn::from_text("Hello world")]);
    let agent = Agent::builder(model.clone())
        .on_model(before_model(|request| request.map_deltas(Hold::default)))
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();

    let (left, _) = read(&agent).await;

    model.assert_done();
    assert_eq!(left, ["Hello world"]);
}

#[tokio::test(start_paused = true)]
async fn an_ending_is_never_retried_nor_changed() {
    let endings = [
        Error::abort("stop"),
        Error::interrupt(Interrupt::new("1", "confirmation")),
        Error::end_invocation(),
    ];
    for ending in endings {
        let model = ScriptedModel::new([Turn::error(busy()), Turn::error(ending.clone())]);
        let retry = CallRetryLayer::new()
            .retry_if(|_| true)
            .layer(model.clone());
        let error = call(retry, ModelRequest::default()).await.unwrap_err();
        model.assert_done();
        assert_eq!(
            (error.kind(), error.message()),
            (ending.kind(), ending.message())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_a_layer_made_another_error_of_is_not_retried() {
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let agent = Agent::builder(ScriptedModel::new([]))
        .model_layer(CallRetryLayer::new().retry_if(|_| true).rng(Part(1.0)))
        .model_layer(tower::util::MapErrLayer::new(|_: Error| busy()))
        .on_model(before_model(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::abort("stop"))
        }))
        .build()
        .unwrap();

    let start = Instant::now();
    let error = agent.run("?").await.unwrap_err();

    assert_eq!(
        (asked.load(Ordering::Relaxed), start.elapsed()),
        (1, Duration::ZERO)
    );
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "stop")
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_called_again_unless_it_is_watched() {
    let turns = || [Turn::error(busy()), Turn::from_text("Hello world")];
    let agent = |model: &ScriptedModel, retry| {
        Agent::builder(model.clone())
            .agent_layer(retry)
            .build()
            .unwrap()
    };

    let model = ScriptedModel::new(turns());
    assert_eq!(
        agent(&model, CallRetryLayer::new())
            .run("?")
            .await
            .unwrap()
            .text(),
        "Hello world"
    );

    let model = ScriptedModel::new(turns());
    let (_, response) = read(&agent(&model, CallRetryLayer::new())).await;
    assert_eq!(
        (model.requests().len(), response.unwrap_err().kind()),
        (1, ErrorKind::Overloaded)
    );

    let model = ScriptedModel::new([
        Turn::tool("no", json!({})),
        half(),
        Turn::from_text("Hello world"),
    ]);
    let (left, response) = read(&agent(&model, CallRetryLayer::new().restart_streams(true))).await;
    model.assert_done();
    assert_eq!(
        (left, response.unwrap().text()),
        (vec!["Hello world".into()], "Hello world".into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_a_layer_calls_again_continues_where_it_failed() {
    let look = || {
        let call = ToolCall::new("1", "look", json!({})).into();
        Turn::response(ModelResponse::new(
            Message::assistant("Let me see.").with_part(call),
        ))
    };
    let model = ScriptedModel::new([look(), half(), Turn::from_text("Hello world")]);
    let agent = Agent::builder(model).build().unwrap();
    let service = CallRetryLayer::new().restart_streams(true).layer(agent);
    let mut run = RunStream::new(service, AgentRequest::new("?"));

    let events: Vec<_> = run.by_ref().collect().await;

    assert_eq!(left(&events), ["Let me see.", "Hello world"]);
    let said: Vec<_> = run
        .response()
        .await
        .unwrap()
        .messages()
        .range(1)
        .map(Message::text)
        .collect();
    assert_eq!(said, ["Let me see.", "", "Hello world"]);
}
