//! `chaos`

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, Effect, Error, ErrorKind, ModelRequest, ModelResponse, Tool, ToolRequest, ToolResponse,
};
use tower_agent_middleware::chaos::ChaosLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::watch::{busy, left, read};
use super::{assert_answered, results};
use test_support::{call, stream};

const SECOND: Duration = Duration::from_secs(1);

fn chaos() -> ChaosLayer<ModelRequest> {
    ChaosLayer::new(1)
}

fn fine() -> ScriptedModel {
    ScriptedModel::always(Turn::from_text("a long answer")).chunk_size(1)
}

/// Returns how each of many calls ended: its error and its time.
async fn endings<M: ModelService>(model: M, calls: usize) -> Vec<(Option<ErrorKind>, Duration)> {
    let mut endings = Vec::new();
    for _ in 0..calls {
        let start = Instant::now();
        let result = call(model.clone(), ModelRequest::default()).await;
        endings.push((result.err().map(|error| error.kind()), start.elapsed()));
    }
    endings
}

fn all(seed: u64) -> ChaosLayer<ModelRequest> {
    ChaosLayer::new(seed)
        .delay(0.3, SECOND)
        .refuse(0.1, SECOND)
        .fail(0.1, busy())
        .cut(0.1, 5)
        .lose(0.1)
        .hold_back(0.3, SECOND)
}

#[tokio::test(start_paused = true)]
async fn a_seed_has_always_the_same_faults_and_another_has_others() {
    let first = endings(all(1).layer(fine()), 200).await;
    assert_eq!(first, endings(all(1).layer(fine()), 200).await);
    assert_ne!(first, endings(all(2).layer(fine()), 200).await);
    // Nor has the next call of one seed the faults of the first call of the next.
    let second = endings(all(2).layer(fine()), 200).await;
    assert_ne!(first[1..], second[..199]);
}

#[tokio::test(start_paused = true)]
async fn one_fault_more_leaves_the_others_as_they_were() {
    let with = endings(
        chaos().delay(0.5, SECOND).fail(0.3, busy()).layer(fine()),
        200,
    )
    .await;
    let without = endings(chaos().fail(0.3, busy()).layer(fine()), 200).await;
    let errors = |endings: &[(Option<ErrorKind>, Duration)]| -> Vec<_> {
        endings.iter().map(|(error, _)| *error).collect()
    };
    assert_eq!(errors(&with), errors(&without));
}

#[tokio::test(start_paused = true)]
async fn a_share_of_the_calls_has_a_fault() {
    for (share, expected) in [(0.0, 0..=0), (0.25, 2_350..=2_650), (1.0, 10_000..=10_000)] {
        let endings = endings(chaos().fail(share, busy()).layer(fine()), 10_000).await;
        let failed = endings.iter().filter(|(error, _)| error.is_some()).count();
        assert!(expected.contains(&failed), "{failed} of {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_faults_nothing_changes() {
    let model = chaos().layer(fine());
    let (response, events) = stream(model, ModelRequest::default()).await;
    assert_eq!(response.unwrap().text(), "a long answer");
    assert_eq!(left(&events), ["a long answer"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_up_to_its_time_and_comes_before_the_call() {
    let inner = service_fn(|_: ModelRequest| async { Err::<ModelResponse, _>(busy()) });
    let times = endings(chaos().delay(1.0, SECOND).layer(inner), 100).await;
    assert!(times.iter().all(|(_, time)| *time <= SECOND + SECOND / 500));
    assert!(times.iter().any(|(_, time)| *time > SECOND / 2));
    assert!(times.iter().any(|(_, time)| *time < SECOND / 2));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_come_again_and_makes_no_call() {
    let inner = ScriptedModel::new([]);
    let model = chaos().refuse(1.0, SECOND * 7).layer(inner.clone());
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(SECOND * 7));
    assert_eq!(error.metadata().status, Some(429));
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_cut_after_each_number_of_deltas_and_what_was_seen_is_a_beginning() {
    let mut lengths = Vec::new();
    let model = chaos().cut(1.0, 20).layer(fine());
    for _ in 0..200 {
        let (result, events) = stream(model.clone(), ModelRequest::default()).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Connection);
        let seen: String = left(&events).concat();
        assert!("a long answer".starts_with(&seen), "{seen}");
        lengths.push(seen.len());
    }
    lengths.sort_unstable();
    lengths.dedup();
    assert_eq!(lengths, (0..=13).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_cut_call_that_is_not_streamed_loses_its_response() {
    let inner = ScriptedModel::new([Turn::from_text("fine")]);
    let model = chaos().cut(1.0, 5).layer(inner.clone());
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_retry_inside_of_a_cut_makes_a_whole_attempt() {
    let milli = Duration::from_millis(1);
    let retry = CallRetryLayer::new()
        .backoff(milli, milli)
        .restart_streams(true);
    for most in 0..20 {
        let model = chaos().cut(1.0, most).layer(retry.layer(fine()));
        let agent = Agent::builder(model).build().unwrap();
        let (texts, response) = read(&agent).await;
        assert_eq!(texts, ["a long answer"]);
        assert_eq!(response.unwrap().text(), "a long answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_response_is_lost_has_run() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let pay = Tool::function("pay", "Pays.", move |_: String| {
        counted.fetch_add(1, Ordering::Relaxed);
        "paid"
    });
    let turns = [Turn::tool("pay", json!("1")), Turn::from_text("Paid?")];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(
            pay.effect(Effect::Mutating)
                .layer(ChaosLayer::new(1).lose(1.0)),
        )
        // It may have been paid, so that nothing tries again.
        .tool_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    let response = agent.run("Pay.").await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(results(&response)[0].contains("the connection broke"));
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_held_back_end_in_another_order_and_answers_keep_theirs() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let turn = (1..8).fold(Turn::tool("echo", json!(0)), |turn, number| {
        turn.and_tool("echo", json!(number))
    });
    let echo = Tool::function("echo", "Echoes.", |number: u64| number);
    let held = ChaosLayer::<ToolRequest>::new(1).hold_back(1.0, SECOND);
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("Done.")]))
        .tool(echo)
        .on_tool(tower_agent::callback::after_tool({
            let order = order.clone();
            move |_, response: &ToolResponse| {
                order
                    .lock()
                    .unwrap()
                    .push(response.value().as_u64().unwrap());
            }
        }))
        .tool_layer(held)
        .build()
        .unwrap();
    let response = agent.run("Echo.").await.unwrap();
    let order = order.lock().unwrap().clone();
    assert_ne!(order, (0..8).collect::<Vec<_>>());
    let numbers: Vec<_> = (0..8).map(|number: u64| number.to_string()).collect();
    assert_eq!(results(&response), numbers);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_not_made_and_a_time_limit_ends_it() {
    let inner = ScriptedModel::new([]);
    let model = ServiceBuilder::new()
        .layer(CallTimeoutLayer::new(SECOND))
        .layer(chaos().hang(1.0))
        .service(inner.clone());
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_breaker_opens_and_a_rate_limit_waits_at_refusals() {
    let probe = ProbeLayer::new();
    let model = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new().failures(3))
        .layer(probe.clone())
        .layer(chaos().fail(1.0, busy()))
        .service(fine());
    endings(model, 10).await;
    assert_eq!(probe.calls(), 3);

    let model = ServiceBuilder::new()
        .layer(RateLimitLayer::new())
        .layer(chaos().refuse(1.0, SECOND * 7))
        .service(fine());
    let times = endings(model, 3).await;
    assert_eq!(times[0].1, Duration::ZERO);
    assert!(times[1..].iter().all(|(_, time)| *time >= SECOND * 7));
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_retry_stands_every_fault_of_every_seed() {
    for seed in 0..300 {
        let turn = Turn::tool("echo", json!("a")).and_tool("echo", json!("b"));
        let model = ScriptedModel::always(turn);
        let model = service_fn(move |request: ModelRequest| {
            let is_first = request.messages().len() == 1;
            let model = if is_first { model.clone() } else { fine() };
            model.oneshot(request)
        });
        let retry = || {
            CallRetryLayer::new()
                .max_attempts(100)
                .restart_streams(true)
                .budget(tower::retry::budget::TpsBudget::new(SECOND, 1_000, 10.0))
        };
        let echo = Tool::function("echo", "Echoes.", |text: String| text).effect(Effect::Pure);
        let faults = ChaosLayer::<ToolRequest>::new(seed)
            .delay(0.3, SECOND)
            .fail(0.2, busy())
            .lose(0.2)
            .hold_back(0.3, SECOND);
        let agent = Agent::builder(model)
            .tool(echo)
            .model_layer(retry())
            .model_layer(all(seed))
            .tool_layer(retry())
            .tool_layer(faults)
            .build()
            .unwrap();
        let (texts, response) = read(&agent).await;
        let response = response.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(texts, ["a long answer"], "seed {seed}");
        assert_eq!(results(&response), ["a", "b"], "seed {seed}");
        assert_answered(response.messages());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_drops_the_call_inside() {
    let probe = ProbeLayer::new();
    let hanging = service_fn(|_: ModelRequest| pending::<Result<ModelResponse, Error>>());
    let model = chaos().delay(1.0, SECOND).layer(probe.layer(hanging));
    let waiting = timeout(SECOND * 2, call(model, ModelRequest::default()));
    assert!(waiting.await.is_err());
    assert_eq!((probe.in_flight(), probe.cancelled()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn it_calls_the_service_that_was_polled_ready() {
    let probe = ProbeLayer::new().pending_polls(2);
    let model = all(1).layer(probe.layer(fine()));
    endings(model.clone(), 50).await;
    assert_eq!(probe.violations(), 0);
}
