//! `rate_limit`

mod fairness;
mod headers;
mod shared;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use serde_json::json;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::error::BoxError;
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, Error, ErrorKind, Interrupt, Message, ModelRequest, ModelResponse, Request, Settings,
    Tool, Usage,
};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::rate_limit::{Exhausted, LimitedResource, RateLimitLayer};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use test_support::{call, stream};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A request without a prompt, which reserves this many tokens.
fn reserving(tokens: u32) -> ModelRequest {
    let mut settings = Settings::default();
    settings.max_tokens = Some(tokens);
    ModelRequest::default().with_settings(settings)
}

fn using(tokens: u64) -> Turn {
    Turn::from_text("fine").usage(Usage::new(0, tokens))
}

/// Returns how long a call waits.
async fn time_of<M: ModelService>(model: &M, request: ModelRequest) -> Duration {
    let start = Instant::now();
    call(model.clone(), request).await.unwrap();
    start.elapsed()
}

#[track_caller]
fn assert_near(time: Duration, expected: Duration) {
    let difference = time.abs_diff(expected);
    assert!(
        difference < Duration::from_millis(20),
        "{time:?}, not {expected:?}"
    );
}

/// The amounts that 64 tasks use in each of some minutes, calling again and again.
async fn minutes_of_64_tasks(layer: RateLimitLayer, minutes: usize) -> Vec<(u64, u64)> {
    let model = layer.layer(service_fn(|request: ModelRequest| async move {
        // Between 40 and 400 tokens, after 50 to 500 ms.
        let chance = request.context().chance("size");
        sleep(Duration::from_millis(50 + (chance * 450.0) as u64)).await;
        let usage = Usage::new(0, 40 + (chance * 360.0) as u64);
        Ok::<_, Error>(ModelResponse::from_text("fine").with_usage(usage))
    }));
    let start = Instant::now();
    let totals: Arc<Vec<(AtomicU64, AtomicU64)>> =
        Arc::new((0..=minutes).map(|_| Default::default()).collect());
    let tasks = (0..64).map(|_| {
        let model = model.clone();
        let totals = totals.clone();
        tokio::spawn(async move {
            loop {
                let response = call(model.clone(), reserving(400)).await.unwrap();
                let minute = (start.elapsed().as_secs() / 60) as usize;
                let Some((calls, tokens)) = totals.get(minute) else {
                    return;
                };
                calls.fetch_add(1, Ordering::Relaxed);
                tokens.fetch_add(response.usage().total(), Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    sleep(MINUTE * minutes as u32).await;
    for task in tasks {
        task.abort();
    }
    let of = |counts: &(AtomicU64, AtomicU64)| {
        (
            counts.0.load(Ordering::Relaxed),
            counts.1.load(Ordering::Relaxed),
        )
    };
    totals.iter().take(minutes).map(of).collect()
}

#[track_caller]
fn assert_uses(used: u64, limit: u64) {
    let share = used as f64 / limit as f64;
    assert!((0.95..=1.01).contains(&share), "{share} of the limit");
}

#[tokio::test(start_paused = true)]
async fn many_tasks_use_the_limit_of_requests_and_no_more() {
    let layer = RateLimitLayer::new()
        .requests(600, MINUTE)
        .max_wait(Duration::MAX);
    for (requests, _) in minutes_of_64_tasks(layer, 5).await {
        assert_uses(requests, 600);
    }
}

// Elsewhere the limit of tokens was configured, and never kept.
#[tokio::test(start_paused = true)]
async fn many_tasks_use_the_limit_of_tokens_and_no_more() {
    let layer = RateLimitLayer::new()
        .tokens(60_000, MINUTE)
        .requests(100_000, MINUTE)
        .max_wait(Duration::MAX);
    for (_, tokens) in minutes_of_64_tasks(layer, 5).await {
        assert_uses(tokens, 60_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_above_the_limit_waits_until_it_fits() {
    let model = RateLimitLayer::new()
        .requests(6, MINUTE)
        .layer(ScriptedModel::always(using(1)));
    assert_eq!(time_of(&model, reserving(1)).await, Duration::ZERO);
    for _ in 0..5 {
        assert_near(time_of(&model, reserving(1)).await, SECOND * 10);
    }
    advance(MINUTE).await;
    assert_eq!(time_of(&model, reserving(1)).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_larger_burst_lets_more_calls_through_at_once() {
    let model = RateLimitLayer::new()
        .requests(20, MINUTE)
        .burst(0.5)
        .layer(ScriptedModel::always(using(1)));
    for _ in 0..10 {
        assert_eq!(time_of(&model, reserving(1)).await, Duration::ZERO);
    }
    assert!(time_of(&model, reserving(1)).await > SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_wait_too_long_fails_at_once_and_says_how_long() {
    let inner = ScriptedModel::new([using(1), using(1)]);
    let model = RateLimitLayer::new()
        .requests(6, MINUTE)
        .max_wait(SECOND * 9)
        .layer(inner.clone());
    call(model.clone(), reserving(1)).await.unwrap();

    let refused = call(model.clone(), reserving(1)).now_or_never().unwrap();
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.is_retryable());
    let exhausted = error.downcast_ref::<Exhausted>().unwrap();
    assert_eq!(exhausted.resource, LimitedResource::Requests);
    assert_eq!(error.retry_after(), Some(exhausted.retry_after));
    assert_near(exhausted.retry_after, SECOND * 10);

    // Who comes when it is told to is let through.
    advance(exhausted.retry_after).await;
    call(model, reserving(1)).await.unwrap();
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_behind_others_fails_once_it_would_wait_too_long() {
    let model = RateLimitLayer::new()
        .requests(6, MINUTE)
        .max_wait(SECOND * 15)
        .layer(ScriptedModel::always(using(1)));
    call(model.clone(), reserving(1)).await.unwrap();
    let calls = (0..3).map(|_| call(model.clone(), reserving(1)));
    let start = Instant::now();
    let results = futures::future::join_all(calls).await;
    assert_near(start.elapsed(), SECOND * 10);
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.into_iter().filter_map(Result::err) {
        assert_near(error.retry_after().unwrap(), SECOND * 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_it_is_told_and_a_fallback_goes_on() {
    let limited = || {
        RateLimitLayer::new()
            .requests(6, MINUTE)
            .max_wait(Duration::ZERO)
            .layer(ScriptedModel::always(using(1)))
    };
    let model = CallRetryLayer::new().layer(limited());
    call(model.clone(), reserving(1)).await.unwrap();
    assert_near(time_of(&model, reserving(1)).await, SECOND * 10);

    let model = Fallback::new(limited()).or(ScriptedModel::always(Turn::from_text("small")));
    call(model.clone(), reserving(1)).await.unwrap();
    let response = call(model, reserving(1)).await.unwrap();
    assert_eq!(response.text(), "small");
}

/// Limits tokens to 100 a second, of which 240 may be used at once.
fn tokens() -> RateLimitLayer {
    RateLimitLayer::new().tokens(6_000, MINUTE)
}

/// The time after which 100 tokens have come back.
const HUNDRED: Duration = Duration::from_millis(1_041);

#[tokio::test(start_paused = true)]
async fn what_a_call_does_not_use_is_given_back() {
    let model = tokens().layer(ScriptedModel::always(using(10)));
    for _ in 0..10 {
        assert_eq!(time_of(&model, reserving(150)).await, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_call_uses_beyond_its_estimate_is_paid_back_before_the_next() {
    let model = tokens().layer(ScriptedModel::always(using(340)));
    assert_eq!(time_of(&model, reserving(40)).await, Duration::ZERO);
    assert_near(time_of(&model, reserving(0)).await, HUNDRED);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_larger_than_the_limit_goes_and_is_paid_back() {
    let model = tokens().layer(ScriptedModel::always(using(10_240)));
    assert_eq!(time_of(&model, reserving(10_240)).await, Duration::ZERO);
    let patient = tokens().max_wait(MINUTE * 10);
    let model = patient.layer(ScriptedModel::always(using(10_240)));
    time_of(&model, reserving(10_240)).await;
    assert!(time_of(&model, reserving(0)).await > MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_reports_no_usage_counts_as_reserved() {
    let model = tokens().layer(ScriptedModel::always(Turn::from_text("fine")));
    assert_eq!(time_of(&model, reserving(240)).await, Duration::ZERO);
    assert_near(time_of(&model, reserving(100)).await, HUNDRED);
}

#[tokio::test(start_paused = true)]
async fn without_a_maximum_the_prompt_and_the_reservation_count() {
    let model = tokens()
        .reservation(100)
        .layer(ScriptedModel::always(Turn::from_text("fine")));
    let request = ModelRequest::new([Message::user("x".repeat(560))]);
    assert_eq!(time_of(&model, request).await, Duration::ZERO);
    assert_near(time_of(&model, reserving(100)).await, HUNDRED);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_gives_its_tokens_back() {
    let error = Error::new(ErrorKind::Provider, "broken");
    let inner = ScriptedModel::new([Turn::error(error), using(240)]);
    let model = tokens().layer(inner);
    call(model.clone(), reserving(240)).await.unwrap_err();
    assert_eq!(time_of(&model, reserving(240)).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_counts_its_prompt_and_what_was_received() {
    let hanging = Turn::from_text("x".repeat(400)).hanging_after(100);
    let inner = ScriptedModel::new([hanging, using(240)]);
    let model = tokens().reservation(100).layer(inner);
    let request = ModelRequest::new([Message::user("x".repeat(160))]);
    let dropped = timeout(Duration::from_millis(1), stream(model.clone(), request));
    assert!(dropped.await.is_err());
    // A prompt of 40 and an answer of 100, so 100 are left.
    assert_near(time_of(&model, reserving(200)).await, HUNDRED);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_inside_counts_its_prompt() {
    let inner = ScriptedModel::new([Turn::pending(), using(10)]);
    let model = ServiceBuilder::new()
        .layer(tokens().reservation(100))
        .layer(CallTimeoutLayer::new(Duration::from_millis(1)))
        .service(inner);
    let request = ModelRequest::new([Message::user("x".repeat(560))]);
    call(model.clone(), request).await.unwrap_err();
    assert_near(time_of(&model, reserving(200)).await, HUNDRED);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_counts_nothing_and_lets_the_next_go() {
    let model = RateLimitLayer::new()
        .requests(6, MINUTE)
        .layer(ScriptedModel::always(using(1)));
    call(model.clone(), reserving(1)).await.unwrap();
    let mut dropped = Box::pin(call(model.clone(), reserving(1)));
    assert!(dropped.as_mut().now_or_never().is_none());
    let mut second = Box::pin(time_of(&model, reserving(1)));
    assert!(second.as_mut().now_or_never().is_none());
    drop(dropped);
    assert_near(second.await, SECOND * 10);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_wakes_a_call_that_waits() {
    let inner = service_fn(|request: ModelRequest| async move {
        sleep(Duration::from_millis(10)).await;
        let tokens = u64::from(request.settings().max_tokens.unwrap());
        let usage = Usage::new(0, (tokens / 100).max(1));
        Ok::<_, Error>(ModelResponse::from_text("fine").with_usage(usage))
    });
    let model = tokens().layer(inner);
    let calls = (0..5).map(|_| call(model.clone(), reserving(240)));
    let start = Instant::now();
    futures::future::join_all(calls).await;
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_once_and_until_its_end() {
    let model = tokens().layer(ScriptedModel::always(using(240)));
    let (response, _) = stream(model.clone(), reserving(240)).await;
    response.unwrap();
    assert_near(time_of(&model, reserving(100)).await, HUNDRED);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_retry_inside_which_it_stands_counts() {
    let busy = || Turn::error(Error::new(ErrorKind::Provider, "broken"));
    let inner = ScriptedModel::new([busy(), busy(), using(1)]);
    let milli = Duration::from_millis(1);
    let model = ServiceBuilder::new()
        .layer(CallRetryLayer::new().backoff(milli, milli))
        .layer(RateLimitLayer::new().requests(6, MINUTE))
        .service(inner);
    let time = time_of(&model, reserving(1)).await;
    assert!(
        time.abs_diff(SECOND * 20) < Duration::from_millis(50),
        "{time:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_of_a_tool_wait_for_one_another() {
    let turn = Turn::tool("look", json!(1))
        .and_tool("look", json!(2))
        .and_tool("look", json!(3));
    let model = ScriptedModel::new([turn, Turn::from_text("Seen.")]);
    let look = Tool::function("look", "Looks.", |_: u32| "nothing")
        .layer(RateLimitLayer::new().requests(6, MINUTE));
    let agent = Agent::builder(model).tool(look).build().unwrap();
    let start = Instant::now();
    let response = agent.run("Look.").await.unwrap();
    assert_near(start.elapsed(), SECOND * 20);
    assert_eq!(super::results(&response), ["nothing"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_asks_a_person_has_not_used_its_limit() {
    let ask = || Error::interrupt(Interrupt::new("1", "confirmation"));
    let inner = ScriptedModel::new([Turn::error(ask()), using(1)]);
    let model = RateLimitLayer::new()
        .requests(6, MINUTE)
        .max_wait(Duration::ZERO)
        .layer(inner);
    call(model.clone(), reserving(1)).await.unwrap_err();
    call(model, reserving(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn clones_share_a_limit_and_two_layers_do_not() {
    let layer = || {
        RateLimitLayer::new()
            .requests(6, MINUTE)
            .max_wait(Duration::ZERO)
    };
    let model = ScriptedModel::always(using(1));
    let shared = layer();
    call(shared.layer(model.clone()), reserving(1))
        .await
        .unwrap();
    call(shared.clone().layer(model.clone()), reserving(1))
        .await
        .unwrap_err();
    call(layer().layer(model), reserving(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_run_that_is_cancelled_ends() {
    let layer = RateLimitLayer::new().requests(1, MINUTE);
    let agent = Agent::builder(ScriptedModel::always(using(1)))
        .model_layer(layer)
        .build()
        .unwrap();
    agent.run("One.").await.unwrap();
    let token = tower_agent::CancellationToken::new();
    let request = tower_agent::AgentRequest::new("Two.").with_cancellation(token.clone());
    let start = Instant::now();
    let cancel = async {
        sleep(SECOND).await;
        token.cancel();
    };
    let (result, ()) = futures::join!(agent.run(request), cancel);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(start.elapsed(), SECOND);
}

#[tokio::test]
async fn it_is_as_ready_as_the_service_inside_and_calls_the_one_that_was_polled() {
    let probe = ProbeLayer::new().pending_polls(2);
    let inner = probe.layer(ScriptedModel::always(using(1)));
    let model = RateLimitLayer::new().requests(600, MINUTE).layer(inner);
    for _ in 0..3 {
        call(model.clone(), reserving(1)).await.unwrap();
    }
    assert_eq!(probe.violations(), 0);

    let busy = service_fn(|_: ModelRequest| pending::<Result<ModelResponse, BoxError>>());
    let inner = ServiceBuilder::new().concurrency_limit(1).service(busy);
    let mut model = RateLimitLayer::new().layer(inner);
    let running = tower::Service::call(model.ready().await.unwrap(), reserving(1));
    assert!(model.ready().now_or_never().is_none());
    drop(running);
    assert!(model.ready().now_or_never().is_some());
}
