//! `Buffer`, and what needs one: services that are not `Clone`, or not `Sync`.

use std::future::Ready;
use std::marker::PhantomData;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::time::Instant;
use tower::buffer::{Buffer, BufferLayer};
use tower::hedge::{Hedge, Policy};
use tower::limit::RateLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::reconnect::Reconnect;
use tower::spawn_ready::SpawnReadyLayer;
use tower::util::{BoxCloneServiceLayer, BoxCloneSyncServiceLayer, BoxLayer};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_agent::agent::{AgentService, BoxAgent};
use tower_agent::message::ToolCall;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::stream::EventKind;
use tower_agent::tool::{BoxTool, ToolService};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, ModelRequest, ModelResponse, RunStream, Tool,
    ToolRequest,
};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use crate::{WAYS, around_each, of_model, run, secs};

#[tokio::test]
async fn a_buffer_passes_calls_and_their_streams_on() {
    for streamed in WAYS {
        let turns = || {
            [
                Turn::from_text("all of it"),
                Turn::error(Error::new(ErrorKind::Auth, "no")),
            ]
        };
        for (place, agent) in around_each!(turns(), BufferLayer::<Call>::new(1)) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "all of it",
                "{place}"
            );
            assert_eq!(
                run(&agent, streamed).await.unwrap_err().kind(),
                ErrorKind::Auth,
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn shedding_outside_a_buffer_refuses_what_it_has_no_room_for() {
    for streamed in WAYS {
        let probe = ProbeLayer::new();
        probe.hold();
        for (place, agent) in around_each!(
            [Turn::from_text("never")],
            ServiceBuilder::new()
                .layer(LoadShedLayer::new())
                .layer(BufferLayer::<Call>::new(1))
                .layer(probe.clone())
                .into_inner()
        ) {
            let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(run(&agent, streamed))).collect();
            // One is with the worker, one in the queue.
            for run in &mut waiting {
                for _ in 0..3 {
                    assert!(futures::poll!(run.as_mut()).is_pending(), "{place}");
                    tokio::task::yield_now().await;
                }
            }
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded, "{place}");
        }
    }
}

/// Fails as soon as it is asked whether it is ready.
#[derive(Clone)]
struct Broken(Option<ErrorKind>);

impl Service<ModelRequest> for Broken {
    type Response = ModelResponse;
    type Error = BoxError;
    type Future = Ready<Result<ModelResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let kind = self.0.expect("this one panics");
        Poll::Ready(Err(Error::new(kind, "the pool is shut").into()))
    }

    fn call(&mut self, _: ModelRequest) -> Self::Future {
        unreachable!()
    }
}

#[tokio::test]
async fn every_call_gets_the_error_that_broke_a_buffers_service_and_a_retry_does_not_help() {
    for streamed in WAYS {
        let buffer = Buffer::new(Broken(Some(ErrorKind::Connection)), 4);
        let agent = of_model(BoxModel::new(buffer));
        for _ in 0..2 {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Connection, "the pool is shut")
            );
            assert!(!error.is_retryable());
        }
    }
}

#[tokio::test]
async fn a_buffer_whose_worker_is_gone_says_what_to_do() {
    for streamed in WAYS {
        let agent = of_model(BoxModel::new(Buffer::new(Broken(None), 4)));
        for _ in 0..2 {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_retryable()),
                (ErrorKind::Other, false)
            );
            assert!(error.message().contains("the runtime"), "{error}");
            assert!(
                error
                    .downcast_ref::<tower::buffer::error::Closed>()
                    .is_some()
            );
        }
    }
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn without_a_runtime_a_buffer_cannot_be_built() {
    drop(around_each!(
        [Turn::from_text("never")],
        BufferLayer::<Call>::new(1)
    ));
}

/// A second attempt after 100 ms.
#[derive(Clone)]
struct Impatient;

impl<R: Clone> Policy<R> for Impatient {
    fn clone_request(&self, request: &R) -> Option<R> {
        Some(request.clone())
    }

    fn can_retry(&self, _: &R) -> bool {
        true
    }
}

/// tower has no layer of it.
struct HedgeLayer<R>(PhantomData<fn(R)>);

impl<R, S> Layer<S> for HedgeLayer<R>
where
    R: Clone,
    S: Service<R, Error: Into<BoxError>> + Clone,
{
    type Service = Hedge<S, Impatient>;

    fn layer(&self, service: S) -> Self::Service {
        Hedge::new_with_mock_latencies(service, Impatient, 1, 0.9, secs(10), &[100])
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_in_a_buffer_shows_the_attempt_that_answers() {
    for streamed in WAYS {
        let late = || Turn::from_text("the second").latency(secs(1));
        let first_hangs = || [Turn::from_text("the first").hanging_after(3), late()];
        for (place, agent) in around_each!(
            first_hangs(),
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .layer(HedgeLayer::<Call>(PhantomData))
                .into_inner()
        ) {
            let start = Instant::now();
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "the second",
                "{place}"
            );
            let took = start.elapsed();
            assert!(
                took >= secs(1) && took <= Duration::from_millis(1200),
                "{place}: {took:?}"
            );
        }
        let second_hangs = || {
            [
                Turn::from_text("the first").latency(secs(1)),
                Turn::pending(),
            ]
        };
        for (place, agent) in around_each!(
            second_hangs(),
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .layer(HedgeLayer::<Call>(PhantomData))
                .into_inner()
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "the first",
                "{place}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_around_an_agent_shows_both_until_one_has_answered() {
    let turns = [
        Turn::from_text("first").hanging_after(3),
        Turn::from_text("second"),
    ];
    let agent = crate::plain(ScriptedModel::new(turns)).build().unwrap();
    let hedge = HedgeLayer::<AgentRequest>(PhantomData).layer(agent);
    let mut stream = RunStream::new(Buffer::new(hedge, 1), "?".into());
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        match event.kind {
            EventKind::TextDelta { text, .. } => {
                seen.push(format!("{}: {text}", event.invocation.number));
            }
            EventKind::AttemptDiscarded { .. } => {
                seen.push(format!("{}: discarded", event.invocation.number));
            }
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            "1: f",
            "1: i",
            "1: r",
            "2: s",
            "2: e",
            "2: c",
            "2: o",
            "2: n",
            "2: d",
            "1: discarded"
        ]
    );
    assert_eq!(stream.response().await.unwrap().text(), "second");
}

#[tokio::test]
async fn spawn_ready_in_a_buffer_gets_its_service_ready_in_the_background() {
    for streamed in WAYS {
        let probe = ProbeLayer::new().pending_polls(3);
        let turns = || [Turn::from_text("one"), Turn::from_text("two")];
        for (place, agent) in around_each!(
            turns(),
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .layer(SpawnReadyLayer::new())
                .layer(probe.clone())
                .into_inner()
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "one",
                "{place}"
            );
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "two",
                "{place}"
            );
        }
        assert_eq!((probe.calls(), probe.violations()), (10, 0));
    }
}

/// Models to connect to, of which the first cannot be reached.
fn connector() -> impl Service<
    ScriptedModel,
    Response = ScriptedModel,
    Error = Error,
    Future = Ready<Result<ScriptedModel, Error>>,
> + Send {
    let mut is_up = false;
    service_fn(move |model: ScriptedModel| {
        std::future::ready(if std::mem::replace(&mut is_up, true) {
            Ok(model)
        } else {
            Err(Error::new(ErrorKind::Connection, "nobody is there"))
        })
    })
}

#[tokio::test]
async fn reconnect_in_a_buffer_is_a_model_that_connects_when_it_is_called() {
    for streamed in WAYS {
        let model = ScriptedModel::new([Turn::from_text("one"), Turn::from_text("two")]);
        let service = Buffer::new(Reconnect::new(connector(), model), 8);
        let agent = of_model(BoxModel::new(service));
        let error = run(&agent, streamed).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ErrorKind::Connection, true)
        );
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "one");
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "two");
    }
}

#[tokio::test]
async fn boxed_layers_fit_as_they_are_or_in_a_buffer() {
    for streamed in WAYS {
        for (place, agent) in around_each!(
            [Turn::from_text("done")],
            BoxCloneSyncServiceLayer::<_, Call, _, _>::new(LoadShedLayer::new())
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "done",
                "{place}"
            );
        }
        for (place, agent) in around_each!(
            [Turn::from_text("done")],
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .layer(BoxCloneServiceLayer::<_, Call, _, _>::new(
                    LoadShedLayer::new()
                ))
                .into_inner()
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "done",
                "{place}"
            );
        }
        for (place, agent) in around_each!(
            [Turn::from_text("done")],
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .layer(BoxLayer::<_, Call, _, _>::new(LoadShedLayer::new()))
                .into_inner()
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "done",
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn a_buffer_is_an_agent_to_a_stream() {
    let model = ScriptedModel::new([Turn::from_text("done")]);
    let agent = crate::plain(model).build().unwrap();
    let (buffer, worker) = Buffer::<AgentRequest, _>::pair(agent, 1);
    let worker = tokio::spawn(worker);
    let agent = BoxAgent::new(buffer);
    assert_eq!(run(&agent, true).await.unwrap().text(), "done");
    drop(agent);
    worker.await.unwrap();
}

const MINUTE: Duration = Duration::from_secs(60);

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

/// A rate limit is not `Clone`, so that it stands under a buffer; whatever the service is.
fn slow_model(model: impl ModelService) -> impl ModelService {
    Buffer::new(RateLimitLayer::new(9, MINUTE).layer(model), 8)
}

fn slow_tool(tool: impl ToolService) -> impl ToolService {
    Buffer::new(tool, 8)
}

fn slow_agent(agent: impl AgentService) -> impl AgentService {
    Buffer::new(agent, 8)
}

#[tokio::test]
async fn a_buffer_wraps_models_tools_and_agents() {
    let model = slow_model(says("hi"));
    let echo = Tool::function("echo", "Says it again.", |text: String| text);
    let tool = slow_tool(echo.clone().into_service());
    let request = ToolRequest::new(ToolCall::new("call", "echo", json!({ "value": "a" })));
    let answer = BoxTool::new(tool).oneshot(request).await.unwrap();
    assert_eq!(answer.value(), "a");
    let agent = Agent::builder(slow_model(model)).build().unwrap();
    let response = BoxAgent::new(slow_agent(agent))
        .oneshot(AgentRequest::new("?"))
        .await
        .unwrap();
    assert_eq!(response.text(), "hi");
}
