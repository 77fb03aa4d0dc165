//! `guard::timeout`

mod runs;

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::call::CallKind;
use tower_agent::callback::before_model;
use tower_agent::message::ToolCall;
use tower_agent::model::ModelService;
use tower_agent::stream::{Delta, Mapper, channel};
use tower_agent::{
    Agent, Error, ErrorKind, Interrupt, ModelRequest, ModelResponse, Result, Tool, ToolRequest,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use test_support::{call, stream};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Says a word after each of the waits, and is done after the last.
fn talker<const N: usize>(waits: [Duration; N], end: Duration) -> impl ModelService {
    service_fn(move |request: ModelRequest| async move {
        let mut attempt = request.delta_sender().unwrap().open();
        for wait in waits {
            sleep(wait).await;
            attempt.send(Delta::Text("word ".into())).await?;
        }
        sleep(end).await;
        Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
    })
}

/// How a streamed call through the layer ends, and after how long.
async fn timed<M: ModelService>(
    layer: CallTimeoutLayer<ModelRequest>,
    model: M,
) -> (Result<ModelResponse>, Duration) {
    let start = Instant::now();
    let (result, _) = stream(layer.layer(model), ModelRequest::default()).await;
    (result, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_50_ms_ends_a_stream_that_takes_500() {
    let (result, took) = timed(
        CallTimeoutLayer::new(50 * MILLI),
        talker([20 * MILLI; 25], MILLI),
    )
    .await;

    assert_eq!(took, 50 * MILLI);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.message(),
        "no response within 50ms (limit for the whole call)"
    );
    assert_eq!(error.call().unwrap().kind, CallKind::Model);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_is_the_answer() {
    let (result, took) = timed(
        CallTimeoutLayer::new(SECOND),
        talker([20 * MILLI; 25], MILLI),
    )
    .await;
    assert_eq!(
        (result.unwrap().message().text(), took),
        ("word ".repeat(25), 501 * MILLI)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_streamed_has_the_limit_of_the_whole_alone() {
    let layer = CallTimeoutLayer::new(10 * SECOND)
        .first_delta(SECOND)
        .idle(SECOND);
    let model = ScriptedModel::new([
        Turn::from_text("late").latency(9 * SECOND),
        Turn::from_text("too late").latency(11 * SECOND),
    ]);
    let model = layer.layer(model);

    let response = call(model.clone(), ModelRequest::default()).await;
    assert_eq!(response.unwrap().message().text(), "late");
    let start = Instant::now();
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(
        (error.kind(), start.elapsed()),
        (ErrorKind::Timeout, 10 * SECOND)
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_delta_has_a_limit_of_its_own() {
    let layer = CallTimeoutLayer::new(60 * SECOND).first_delta(5 * SECOND);

    let (result, took) = timed(layer.clone(), talker([6 * SECOND], MILLI)).await;
    assert_eq!(took, 5 * SECOND);
    assert_eq!(
        result.unwrap_err().message(),
        "no delta within 5s (limit for the first delta)"
    );

    // It ignores everything after the first.
    let (result, _) = timed(layer, talker([4 * SECOND, 20 * SECOND], 20 * SECOND)).await;
    result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_delta_and_the_end_have_to_come_soon_after_the_last() {
    let layer = CallTimeoutLayer::new(60 * SECOND).idle(2 * SECOND);
    let soon = 1900 * MILLI;

    let (result, took) = timed(layer.clone(), talker([10 * SECOND, soon, soon, soon], soon)).await;
    assert_eq!((result.is_ok(), took), (true, 17_600 * MILLI));

    for (waits, end) in [
        ([soon, soon, 3 * SECOND], soon),
        ([soon, MILLI, soon - MILLI], 3 * SECOND),
    ] {
        let before: Duration = waits.iter().filter(|wait| **wait < 2 * SECOND).sum();
        let (result, took) = timed(layer.clone(), talker(waits, end)).await;
        assert_eq!(took, before + 2 * SECOND);
        assert_eq!(
            result.unwrap_err().message(),
            "no delta for 2s (limit between deltas)"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_limit_holds_after_a_long_one_began() {
    let layer = CallTimeoutLayer::new(60 * SECOND)
        .first_delta(30 * SECOND)
        .idle(SECOND);
    let (result, took) = timed(layer, talker([500 * MILLI, 20 * SECOND], MILLI)).await;
    assert_eq!((result.is_err(), took), (true, 1500 * MILLI));
}

#[tokio::test(start_paused = true)]
async fn deltas_that_another_task_sends_count() {
    let layer = CallTimeoutLayer::new(60 * SECOND)
        .first_delta(30 * SECOND)
        .idle(SECOND);
    let spawned = |waits: [Duration; 2]| {
        service_fn(move |request: ModelRequest| async move {
            let answer = call(talker(waits, MILLI), request);
            let mut task = tokio::task::JoinSet::new();
            task.spawn(answer);
            task.join_next().await.unwrap().unwrap()
        })
    };
    let (result, took) = timed(layer.clone(), spawned([500 * MILLI, 20 * SECOND])).await;
    assert_eq!((result.is_err(), took), (true, 1500 * MILLI));

    let (result, _) = timed(layer, spawned([500 * MILLI, 900 * MILLI])).await;
    result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_after_the_stream_is_not_waiting_for_a_delta() {
    let layer = CallTimeoutLayer::new(60 * SECOND).idle(SECOND);
    let model = service_fn(|request: ModelRequest| async move {
        let answer = call(talker([MILLI], MILLI), request).await;
        sleep(10 * SECOND).await;
        answer
    });
    timed(layer, model).await.0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_inside_is_a_sign_of_life() {
    let calls = Arc::<AtomicUsize>::default();
    let model = service_fn(move |request: ModelRequest| {
        let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            sleep(600 * MILLI).await;
            let mut attempt = request.delta_sender().unwrap().open();
            sleep(600 * MILLI).await;
            attempt.send(Delta::Text("word".into())).await?;
            if first {
                return Err(Error::new(ErrorKind::Connection, "broken"));
            }
            Ok(ModelResponse::from(attempt.finish().await?))
        }
    });
    let retry = CallRetryLayer::new()
        .restart_streams(true)
        .backoff(Duration::ZERO, Duration::ZERO)
        .layer(model);
    let layer = CallTimeoutLayer::new(60 * SECOND).idle(SECOND);

    assert_eq!(
        timed(layer, retry).await.0.unwrap().message().text(),
        "word"
    );
}

/// Passes nothing on before its time.
struct Gate(Pin<Box<Sleep>>);

impl Mapper for Gate {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.as_mut().poll(cx).map(Ok)
    }

    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        out.push(delta);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_makes_the_model_wait_counts() {
    let gate = before_model(|request| request.map_deltas(|| Gate(Box::pin(sleep(10 * SECOND)))));
    let layer = CallTimeoutLayer::new(60 * SECOND).idle(SECOND);
    let model = gate.layer(layer.layer(talker([MILLI; 3], MILLI)));
    let start = Instant::now();

    let (result, _) = stream(model, ModelRequest::default()).await;

    assert_eq!(
        result.unwrap_err().message(),
        "no delta for 1s (limit between deltas)"
    );
    assert_eq!(start.elapsed(), 1001 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn a_delta_that_a_callback_outside_drops_counts_all_the_same() {
    let silence = before_model(|request| {
        request.map_deltas(|| tower_agent::stream::map_fn(|_| None));
    });
    let layer = CallTimeoutLayer::new(60 * SECOND)
        .first_delta(SECOND)
        .idle(SECOND);
    let model = silence.layer(layer.layer(talker([900 * MILLI; 5], MILLI)));

    let (result, events) = stream(model, ModelRequest::default()).await;

    assert_eq!(result.unwrap().message().text(), "word ".repeat(5));
    assert!(events.is_empty(), "{events:?}");
}

/// A layer with every limit at a second.
fn strict() -> CallTimeoutLayer<ModelRequest> {
    CallTimeoutLayer::new(SECOND)
        .first_delta(SECOND)
        .idle(SECOND)
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_run_is_not_the_models_fault() {
    let agent = Agent::builder(talker([10 * MILLI; 40], MILLI))
        .model_layer(strict())
        .agent_layer(CallTimeoutLayer::new(SECOND))
        .build()
        .unwrap();

    let mut run = agent.stream("?");
    while run.next().await.is_some() {
        sleep(5 * SECOND).await;
    }

    assert_eq!(run.response().await.unwrap().text(), "word ".repeat(40));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_one_call_is_not_the_models_fault() {
    let (sink, mut events) = channel(1);
    let model = strict().layer(talker([10 * MILLI; 40], MILLI));
    let reader = async {
        while events.next().await.is_some() {
            sleep(5 * SECOND).await;
        }
    };
    let answer = call(model, ModelRequest::default().with_delta_sender(sink));

    let (response, ()) = futures::join!(answer, reader);

    assert_eq!(response.unwrap().message().text(), "word ".repeat(40));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_no_excuse_for_a_slow_model() {
    let agent = Agent::builder(talker([300 * MILLI; 40], MILLI))
        .model_layer(CallTimeoutLayer::new(SECOND))
        .build()
        .unwrap();

    let mut run = agent.stream("?");
    while run.next().await.is_some() {
        // Longer than the model's timer: it is due at once when the reader is back.
        tokio::time::advance(100 * MILLI).await;
    }

    assert_eq!(run.response().await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn tools_have_one_limit_and_some_their_own() {
    let tool = |name: &str, takes: Duration| {
        Tool::function(name, "Takes its time.", move |_: Value| async move {
            sleep(takes).await;
            "done"
        })
    };
    let turn = Turn::tool("quick", json!({}))
        .and_tool("slow", json!({}))
        .and_tool("stuck", json!({}));
    let model = ScriptedModel::new([turn, Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .tools([
            tool("quick", SECOND).layer(CallTimeoutLayer::new(10 * SECOND)),
            tool("slow", 100 * SECOND).layer(CallTimeoutLayer::new(200 * SECOND)),
            tool("stuck", 100 * SECOND).layer(CallTimeoutLayer::new(10 * SECOND)),
        ])
        .build()
        .unwrap();
    let start = Instant::now();

    agent.run("?").await.unwrap();

    assert_eq!(start.elapsed(), 100 * SECOND);
    let told: Vec<_> = model.requests()[1]
        .messages()
        .range(2)
        .flat_map(|message| {
            message
                .tool_results()
                .map(|result| result.text())
                .collect::<Vec<_>>()
        })
        .collect();
    let late = "timed out: no response within 10s (limit for the whole call); the tool was still \
                running, and its outcome is unknown";
    assert_eq!(told, ["done", "done", late]);
}

#[tokio::test(start_paused = true)]
async fn the_error_names_the_tool() {
    let tool = service_fn(|_: ToolRequest| pending::<Result<tower_agent::ToolResponse>>());
    let call = ToolRequest::new(ToolCall::new("1", "search", json!({})));
    let error = CallTimeoutLayer::new(SECOND)
        .layer(tool)
        .oneshot(call)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "tool call `search`: timed out: no response within 1s (limit for the whole call)"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_has_its_limit() {
    let agent = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .agent_layer(CallTimeoutLayer::new(SECOND))
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.call().unwrap().kind, CallKind::Agent);
}

#[tokio::test(start_paused = true)]
async fn no_limit_is_too_short_or_too_long() {
    let now = |text| ScriptedModel::new([Turn::from_text(text)]);
    let (result, _) = timed(CallTimeoutLayer::new(Duration::ZERO), now("at once")).await;
    result.unwrap();
    let (result, took) = timed(
        CallTimeoutLayer::new(Duration::ZERO),
        talker([SECOND], MILLI),
    )
    .await;
    assert_eq!((result.is_err(), took), (true, Duration::ZERO));
    let forever = CallTimeoutLayer::new(Duration::MAX).idle(Duration::MAX);
    timed(forever, talker([1000 * SECOND], SECOND))
        .await
        .0
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ending_and_a_panic_pass_as_they_are() {
    let endings = [
        Error::abort("stop"),
        Error::interrupt(Interrupt::new("1", "confirmation")),
        Error::end_invocation(),
    ];
    for ending in endings {
        let model = ScriptedModel::new([Turn::error(ending.clone())]);
        let (result, _) = timed(strict(), model).await;
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ending.kind(), ending.message())
        );
    }
    let probe = ProbeLayer::new();
    let broken = ScriptedModel::new([Turn::function(|_| panic!("broken"))]);
    let call = call(strict().layer(probe.layer(broken)), ModelRequest::default());
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
    assert_eq!(probe.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_took_too_long_or_was_dropped_is_gone() {
    let probe = ProbeLayer::new().pending_polls(2);
    let model = ServiceBuilder::new()
        .layer(strict())
        .layer(probe.clone())
        .service(ScriptedModel::always(Turn::pending()));

    call(model.clone(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (probe.calls(), probe.cancelled(), probe.in_flight()),
        (1, 1, 0)
    );

    let mut dropped = Box::pin(call(model, ModelRequest::default()));
    for _ in 0..3 {
        assert!(dropped.as_mut().now_or_never().is_none());
    }
    assert_eq!(probe.in_flight(), 1);
    drop(dropped);
    assert_eq!(
        (probe.calls(), probe.cancelled(), probe.in_flight()),
        (2, 2, 0)
    );
    assert_eq!(probe.violations(), 0);
}
