//! `guard::retry`

mod runs;
mod streams;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::retry::budget::Budget;
use tower::util::rng::Rng;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::message::ToolCall;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, BoxError, Effect, Error, ErrorKind, ModelRequest, ModelResponse, Request, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::watch::busy;
use test_support::call;
use test_support::call::{Call, Embed};
use test_support::traces::Traces;

const SECOND: Duration = Duration::from_secs(1);

/// Always the same part of the backoff.
struct Part(f64);

impl Rng for Part {
    fn next_u64(&mut self) -> u64 {
        0
    }

    fn next_f64(&mut self) -> f64 {
        self.0
    }
}

/// A model that notes when it is called, and always fails.
fn failing(
    error: Error,
) -> (
    Arc<Mutex<Vec<Instant>>>,
    impl tower_agent::model::ModelService,
) {
    let calls = Arc::<Mutex<Vec<Instant>>>::default();
    let noted = calls.clone();
    let model = service_fn(move |_: ModelRequest| {
        noted.lock().unwrap().push(Instant::now());
        let error = error.clone();
        async { Err::<ModelResponse, _>(error) }
    });
    (calls, model)
}

/// The waits between the attempts of one call.
async fn waits(layer: CallRetryLayer, error: Error) -> (Vec<Duration>, Error) {
    let (calls, model) = failing(error);
    let error = call(layer.layer(model), ModelRequest::default())
        .await
        .unwrap_err();
    let calls = calls.lock().unwrap();
    (calls.windows(2).map(|two| two[1] - two[0]).collect(), error)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_three_times_in_all_and_the_error_says_so() {
    let model = ScriptedModel::new([
        Turn::error(busy()),
        Turn::error(busy()),
        Turn::error(busy()),
    ]);

    let error = call(
        CallRetryLayer::new().layer(model.clone()),
        ModelRequest::default(),
    )
    .await
    .unwrap_err();

    model.assert_done();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Overloaded, "busy (after 3 attempts)")
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_success_is_the_answer() {
    let model = ScriptedModel::new([Turn::error(busy()), Turn::from_text("hi")]);

    let response = call(
        CallRetryLayer::new().layer(model.clone()),
        ModelRequest::default(),
    )
    .await;

    assert_eq!(response.unwrap().message().text(), "hi");
    model.assert_done();
}

#[tokio::test]
async fn one_attempt_is_no_retry_and_none_is_one() {
    for attempts in [0, 1] {
        let model = ScriptedModel::new([Turn::error(busy())]);
        let retry = CallRetryLayer::new()
            .max_attempts(attempts)
            .layer(model.clone());
        let error = call(retry, ModelRequest::default()).await.unwrap_err();
        model.assert_done();
        assert_eq!(error.message(), "busy");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_not_retryable_goes_up_as_it_is() {
    let bad = Error::new(ErrorKind::InvalidRequest, "bad");
    let model = ScriptedModel::new([
        Turn::error(bad.clone()),
        Turn::error(busy()),
        Turn::error(bad),
    ]);
    let retry = CallRetryLayer::new().layer(model.clone());

    let error = call(retry.clone(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!((model.requests().len(), error.message()), (1, "bad"));

    let error = call(retry, ModelRequest::default()).await.unwrap_err();
    assert_eq!(
        (model.requests().len(), error.message()),
        (3, "bad (after 2 attempts)")
    );
}

#[tokio::test(start_paused = true)]
async fn a_predicate_decides_in_the_place_of_the_error() {
    let auth = Error::new(ErrorKind::Auth, "no");
    let model = ScriptedModel::new([Turn::error(auth), Turn::error(busy())]);
    let retry = CallRetryLayer::new().retry_if(|error| error.kind() == ErrorKind::Auth);

    let error = call(retry.layer(model.clone()), ModelRequest::default())
        .await
        .unwrap_err();

    model.assert_done();
    assert_eq!(error.message(), "busy (after 2 attempts)");
}

#[tokio::test]
async fn a_predicate_that_panics_fails_the_call_and_keeps_its_error() {
    let model = ScriptedModel::new([Turn::error(busy())]);
    let retry = CallRetryLayer::new().retry_if(|_| panic!("no idea"));

    let error = call(retry.layer(model.clone()), ModelRequest::default())
        .await
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Callback);
    assert_eq!(error.message(), "the predicate panicked: no idea");
    assert_eq!(error.downcast_ref::<Error>().unwrap().message(), "busy");
}

#[tokio::test(start_paused = true)]
async fn the_backoff_doubles_up_to_its_most_and_is_a_part_of_that() {
    let layer = CallRetryLayer::new()
        .max_attempts(6)
        .backoff(SECOND, 5 * SECOND);
    for (part, seconds) in [(1.0, [1, 2, 4, 5, 5]), (0.0, [0; 5])] {
        let (waits, _) = waits(layer.clone().rng(Part(part)), busy()).await;
        let expected = seconds.map(|seconds| seconds * SECOND);
        assert_eq!(waits, expected, "{part}");
    }
    // Whatever the source of chance says.
    for part in [-1.0, 7.0, f64::NAN, f64::INFINITY] {
        let (waits, _) = waits(layer.clone().rng(Part(part)), busy()).await;
        assert!(
            waits.iter().all(|wait| *wait <= 5 * SECOND),
            "{part}: {waits:?}"
        );
        assert_eq!(waits.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_together_do_not_wait_alike() {
    let (calls, model) = failing(busy());
    let retry = CallRetryLayer::new()
        .max_attempts(2)
        .backoff(10 * SECOND, 10 * SECOND);
    let retry = retry.layer(model);
    let start = Instant::now();

    join_all((0..20).map(|_| call(retry.clone(), ModelRequest::default()))).await;

    let waits: Vec<_> = calls.lock().unwrap()[20..]
        .iter()
        .map(|call| *call - start)
        .collect();
    assert_eq!(waits.len(), 20);
    // The clock tells milliseconds apart.
    assert!(
        waits
            .iter()
            .all(|wait| *wait <= 10 * SECOND + Duration::from_millis(1)),
        "{waits:?}"
    );
    assert!(
        waits
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len()
            > 10,
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_server_says_how_long_to_wait_up_to_a_limit() {
    let layer = CallRetryLayer::new().max_attempts(2).rng(Part(0.0));
    let after = |wait: Duration| busy().with_retry_after(wait);

    let (served, _) = waits(layer.clone(), after(60 * SECOND)).await;
    assert_eq!(served, [60 * SECOND]);

    let (served, error) = waits(layer.clone(), after(61 * SECOND)).await;
    assert!(served.is_empty(), "{served:?}");
    assert_eq!(
        error.message(),
        "busy (after 1 attempt; not retried: the server asked to wait 61s, more than the maximum of 60s)"
    );
    assert_eq!(error.retry_after(), Some(61 * SECOND));

    let (served, _) = waits(layer.max_retry_after(90 * SECOND), after(61 * SECOND)).await;
    assert_eq!(served, [61 * SECOND]);
}

/// So many retries, and one more for each success.
#[derive(Clone, Default)]
struct Purse(Arc<AtomicIsize>);

impl Budget for Purse {
    fn deposit(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn withdraw(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

#[tokio::test(start_paused = true)]
async fn clones_share_a_budget_that_successes_fill() {
    let purse = Purse::default();
    let layer = CallRetryLayer::new().budget(purse.clone());
    let model = ScriptedModel::new([
        Turn::from_text("a"),
        Turn::error(busy()),
        Turn::error(busy()),
    ]);
    let (retry, other) = (
        layer.layer(model.clone()),
        layer.clone().layer(model.clone()),
    );

    call(retry, ModelRequest::default()).await.unwrap();
    assert_eq!(purse.0.load(Ordering::Relaxed), 1);
    let error = call(other, ModelRequest::default()).await.unwrap_err();

    model.assert_done();
    assert_eq!(
        error.message(),
        "busy (after 2 attempts; not retried: the retry budget is exhausted)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_not_made_costs_no_budget() {
    let purse = Purse(Arc::new(AtomicIsize::new(5)));
    let layer = CallRetryLayer::new().budget(purse.clone());
    for error in [
        Error::new(ErrorKind::Auth, "no"),
        busy().with_retry_after(99 * SECOND),
    ] {
        waits(layer.clone(), error).await;
    }
    assert_eq!(purse.0.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn by_default_thirty_retries_are_allowed_in_ten_seconds() {
    let (calls, model) = failing(busy());
    let retry = CallRetryLayer::new().rng(Part(0.0)).layer(model);

    join_all((0..40).map(|_| call(retry.clone(), ModelRequest::default()))).await;

    assert_eq!(calls.lock().unwrap().len(), 40 + 30);
}

/// How often a tool that always fails is called.
async fn tool_calls(declaration: Option<ToolDeclaration>) -> usize {
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let tool = service_fn(move |_: ToolRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err::<ToolResponse, _>(busy()) }
    });
    let request = ToolRequest::new(ToolCall::new("1", "look", json!({})))
        .with_declaration(declaration.map(Arc::new));
    CallRetryLayer::new()
        .layer(tool)
        .oneshot(request)
        .await
        .unwrap_err();
    calls.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_called_again_only_if_that_does_no_harm() {
    let tool = ToolDeclaration::new("look", "Looks.");
    for (effect, calls) in [
        (Effect::Pure, 3),
        (Effect::Idempotent, 3),
        (Effect::Mutating, 1),
    ] {
        assert_eq!(
            tool_calls(Some(tool.clone().with_effect(effect))).await,
            calls,
            "{effect:?}"
        );
    }
    assert_eq!(tool_calls(Some(tool)).await, 1);
    assert_eq!(tool_calls(None).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_agents_tools_are_called_again_by_what_they_declare() {
    let calls = Arc::<Mutex<Vec<&str>>>::default();
    let tool = |name: &'static str, effect| {
        let calls = calls.clone();
        Tool::function(name, "Does it.", move |_: Value| {
            calls.lock().unwrap().push(name);
            Err::<Value, _>(Error::new(ErrorKind::Connection, "broke"))
        })
        .effect(effect)
    };
    let turn = Turn::tool("read", json!({})).and_tool("write", json!({}));
    let model = ScriptedModel::new([turn, Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .tools([tool("read", Effect::Pure), tool("write", Effect::Mutating)])
        .tool_concurrency(1)
        .tool_layer(CallRetryLayer::new())
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(*calls.lock().unwrap(), ["read", "read", "read", "write"]);
    let told: Vec<_> = model.requests()[1]
        .messages()
        .range(2)
        .map(|m| m.parts().to_vec())
        .collect();
    let told = format!("{told:?}");
    assert!(
        told.contains("connection failed: broke (after 3 attempts)"),
        "{told}"
    );
    let once =
        "connection failed: broke (after 1 attempt; not retried: the tool's effect is `Mutating`)";
    assert!(told.contains(once), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_custom_call_is_retried_too() {
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let embed = CallRetryLayer::new().layer(service_fn(move |request: Embed| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                Err(BoxError::from(busy()))
            } else {
                Ok(Embed::response(&request.text))
            }
        }
    }));
    let request = Embed {
        text: "agenda".into(),
        ..Embed::default()
    };
    assert_eq!(embed.oneshot(request).await.unwrap().text, "agenda");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_model_goes_up_and_is_not_retried() {
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let probe = ProbeLayer::new();
    let model = probe.layer(service_fn(move |_: ModelRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {
            if true {
                panic!("broken")
            } else {
                Ok::<ModelResponse, Error>(ModelResponse::from_text(""))
            }
        }
    }));

    let call = call(CallRetryLayer::new().layer(model), ModelRequest::default());
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());

    assert_eq!((calls.load(Ordering::Relaxed), probe.in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_waits_until_the_service_is_ready() {
    let probe = ProbeLayer::new().pending_polls(2);
    let model = ScriptedModel::new([
        Turn::error(busy()),
        Turn::error(busy()),
        Turn::from_text("hi"),
    ]);
    let retry = ServiceBuilder::new()
        .layer(CallRetryLayer::new())
        .layer(probe.clone())
        .service(model);

    call(retry, ModelRequest::default()).await.unwrap();

    assert_eq!((probe.calls(), probe.violations()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_an_attempt_or_between_two_leaves_nothing() {
    let probe = ProbeLayer::new();
    let model = ScriptedModel::new([Turn::pending(), Turn::error(busy()), Turn::from_text("hi")]);
    let retry = CallRetryLayer::new()
        .rng(Part(1.0))
        .layer(probe.layer(model.clone()));

    let mut in_an_attempt = Box::pin(call(retry.clone(), ModelRequest::default()));
    assert!(in_an_attempt.as_mut().now_or_never().is_none());
    assert_eq!(probe.in_flight(), 1);
    drop(in_an_attempt);
    assert_eq!((probe.in_flight(), probe.cancelled()), (0, 1));

    let mut between = Box::pin(call(retry, ModelRequest::default()));
    assert!(between.as_mut().now_or_never().is_none());
    drop(between);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(
        (probe.calls(), probe.in_flight(), probe.cancelled()),
        (2, 0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_to_be_made_again_keeps_no_place_in_a_limit() {
    let model = ScriptedModel::new([
        Turn::error(busy()),
        Turn::from_text("first"),
        Turn::from_text("second"),
    ]);
    let retry = ServiceBuilder::new()
        .layer(
            CallRetryLayer::new()
                .rng(Part(1.0))
                .backoff(9 * SECOND, 9 * SECOND),
        )
        .concurrency_limit(1)
        .service(model);
    let start = Instant::now();
    let mut waiting = Box::pin(call(retry.clone(), ModelRequest::default()));
    assert!(waiting.as_mut().now_or_never().is_none());

    let other = call(retry, ModelRequest::default()).await.unwrap();

    assert_eq!(
        (other.message().text(), start.elapsed()),
        ("first".into(), Duration::ZERO)
    );
    assert_eq!(waiting.await.unwrap().message().text(), "second");
}

#[tokio::test(start_paused = true)]
async fn each_retry_is_traced() {
    let traces = Traces::default();
    let _traced = tracing::subscriber::set_default(traces.clone());
    let model = ScriptedModel::new([
        Turn::error(busy()),
        Turn::error(busy()),
        Turn::from_text("hi"),
    ]);
    let retry = CallRetryLayer::new()
        .backoff(SECOND, SECOND)
        .rng(Part(1.0))
        .layer(model);

    let request = ModelRequest::default();
    let run_id = request.context().run_id().to_owned();
    call(retry, request).await.unwrap();

    let expected = [1, 2].map(|made| {
        format!(
            "message=retrying call run_id={run_id:?} call=model call made={made} wait=1s \
             kind=overloaded"
        )
    });
    assert_eq!(traces.take(), expected);
}
