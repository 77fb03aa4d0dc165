//! `circuit_breaker`

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, advance};
use tower::{Service, ServiceExt, service_fn};
use tower_agent::error::BoxError;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Error, ErrorKind, Interrupt, ModelRequest, ModelResponse,
    Request, RunContext, Tool,
};
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::rate_limit::{Exhausted, RateLimitLayer};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use super::results;
use super::watch::busy;
use test_support::{call, stream};

const PAUSE: Duration = Duration::from_secs(30);
const MILLI: Duration = Duration::from_millis(1);

fn breaker() -> CircuitBreakerLayer {
    CircuitBreakerLayer::new().failures(3).pause(PAUSE)
}

fn fail() -> Turn {
    Turn::error(busy())
}

fn succeed() -> Turn {
    Turn::from_text("fine")
}

/// Calls a model and returns whether it succeeded.
async fn ask<M: ModelService>(model: &M) -> Result<ModelResponse, Error> {
    call(model.clone(), ModelRequest::default()).await
}

/// Calls a model so often, and returns how many calls reached it.
async fn ask_often<M: ModelService>(model: &M, inner: &ScriptedModel, times: usize) -> usize {
    let before = inner.requests().len();
    for _ in 0..times {
        // Failures are what the tests set up; they count the calls.
        let _ = ask(model).await;
    }
    inner.requests().len() - before
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.message().starts_with("not called"), "{error}");
    error
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_not_called_until_one_call_shows_that_it_works() {
    let inner = ScriptedModel::new([fail(), fail(), fail(), succeed(), succeed(), succeed()]);
    let model = breaker().layer(inner.clone());

    assert_eq!(ask_often(&model, &inner, 10).await, 3);
    let error = assert_refused(ask(&model).await);
    assert_eq!(error.retry_after(), Some(PAUSE));
    assert!(!error.is_retryable());
    assert_eq!(
        error.message(),
        "not called: the last 3 calls failed; the next one may be made in 30s"
    );

    advance(PAUSE - MILLI).await;
    assert_eq!(ask_often(&model, &inner, 1).await, 0);
    advance(MILLI).await;
    assert_eq!(ask_often(&model, &inner, 3).await, 3);
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_success_in_between_starts_the_count_again() {
    let inner = ScriptedModel::new([
        fail(),
        fail(),
        succeed(),
        fail(),
        fail(),
        succeed(),
        fail(),
        fail(),
        fail(),
    ]);
    let model = breaker().layer(inner.clone());
    assert_eq!(ask_often(&model, &inner, 20).await, 9);
}

#[tokio::test(start_paused = true)]
async fn a_test_that_fails_opens_the_circuit_again_at_once() {
    let after = Duration::from_secs(300);
    let quota = Turn::error(busy().with_retry_after(after));
    let inner = ScriptedModel::new([fail(), fail(), fail(), fail(), quota, succeed()]);
    let model = breaker().layer(inner.clone());
    assert_eq!(ask_often(&model, &inner, 5).await, 3);

    advance(PAUSE).await;
    assert_eq!(ask_often(&model, &inner, 5).await, 1);
    advance(PAUSE).await;
    assert_eq!(ask_often(&model, &inner, 5).await, 1);
    // The provider has said when to come again, which is later.
    advance(after - MILLI).await;
    assert_eq!(ask_often(&model, &inner, 5).await, 0);
    advance(MILLI).await;
    assert_eq!(ask_often(&model, &inner, 1).await, 1);
    inner.assert_done();
}

/// A model whose calls end when the test says how, by their number.
fn steered() -> (
    impl ModelService,
    tokio::sync::mpsc::UnboundedReceiver<oneshot::Sender<Result<ModelResponse, Error>>>,
) {
    let (calls, received) = tokio::sync::mpsc::unbounded_channel();
    let model = service_fn(move |_: ModelRequest| {
        let (end, ended) = oneshot::channel();
        let sent = calls.send(end).is_ok();
        async move {
            assert!(sent);
            ended.await.unwrap()
        }
    });
    (model, received)
}

#[tokio::test(start_paused = true)]
async fn only_one_call_tests_an_open_circuit() {
    let (inner, mut calls) = steered();
    let model = breaker().failures(1).layer(inner);
    let mut first = Box::pin(ask(&model));
    assert!(first.as_mut().now_or_never().is_none());
    calls.try_recv().unwrap().send(Err(busy())).unwrap();
    first.await.unwrap_err();

    advance(PAUSE).await;
    let mut test = Box::pin(ask(&model));
    assert!(test.as_mut().now_or_never().is_none());
    for _ in 0..10 {
        assert_refused(ask(&model).await);
    }
    calls
        .try_recv()
        .unwrap()
        .send(Ok(ModelResponse::from_text("fine")))
        .unwrap();
    test.await.unwrap();
    let mut next = Box::pin(ask(&model));
    assert!(next.as_mut().now_or_never().is_none());
    calls.try_recv().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_test_that_is_dropped_or_hangs_does_not_hold_the_circuit_open() {
    let (inner, mut calls) = steered();
    let model = breaker().failures(1).layer(inner);
    let mut first = Box::pin(ask(&model));
    assert!(first.as_mut().now_or_never().is_none());
    calls.try_recv().unwrap().send(Err(busy())).unwrap();
    first.await.unwrap_err();
    advance(PAUSE).await;

    let mut dropped = Box::pin(ask(&model));
    assert!(dropped.as_mut().now_or_never().is_none());
    drop(dropped);
    calls.try_recv().unwrap();
    let mut hanging = Box::pin(ask(&model));
    assert!(hanging.as_mut().now_or_never().is_none());
    let _hanging_call = calls.try_recv().unwrap();
    assert_refused(ask(&model).await);

    advance(PAUSE).await;
    let mut second = Box::pin(ask(&model));
    assert!(second.as_mut().now_or_never().is_none());
    calls.try_recv().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_older_than_the_circuit_says_nothing_about_it() {
    let (inner, mut calls) = steered();
    let model = breaker().failures(1).layer(inner);
    let mut begin = || {
        let mut call = Box::pin(ask(&model));
        assert!(call.as_mut().now_or_never().is_none());
        (call, calls.try_recv().unwrap())
    };
    let (lucky, end_lucky) = begin();
    let (late, end_late) = begin();
    let (failing, end_failing) = begin();
    end_failing.send(Err(busy())).unwrap();
    failing.await.unwrap_err();

    // A success of before does not close it.
    end_lucky
        .send(Ok(ModelResponse::from_text("fine")))
        .unwrap();
    lucky.await.unwrap();
    assert_refused(ask(&model).await);

    advance(PAUSE).await;
    let (test, end_test) = begin();
    end_test.send(Ok(ModelResponse::from_text("fine"))).unwrap();
    test.await.unwrap();
    // Nor does a failure of before open it again.
    end_late.send(Err(busy())).unwrap();
    late.await.unwrap_err();
    drop(begin());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_has_failed() {
    let broken = || Turn::from_text("a long answer").failing_after(2, busy());
    let inner = ScriptedModel::new([broken(), broken(), broken()]);
    let model = breaker().layer(inner.clone());
    for _ in 0..3 {
        let (result, deltas) = stream(model.clone(), ModelRequest::default()).await;
        result.unwrap_err();
        assert!(!deltas.is_empty());
    }
    assert_refused(stream(model, ModelRequest::default()).await.0);
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_no_failure() {
    let model = breaker().layer(service_fn(|_: ModelRequest| {
        pending::<Result<ModelResponse, Error>>()
    }));
    for _ in 0..10 {
        assert!(ask(&model).now_or_never().is_none());
    }

    let ends = [
        Error::abort("stop"),
        Error::interrupt(Interrupt::new("1", "confirmation")),
        Error::end_invocation(),
        Error::new(ErrorKind::Cancelled, "the run was cancelled"),
    ];
    let turns = ends.iter().cycle().take(12).cloned().map(Turn::error);
    let inner = ScriptedModel::new(turns);
    let model = breaker().failure_if(|_| true).layer(inner.clone());
    assert_eq!(ask_often(&model, &inner, 12).await, 12);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_request_was_wrong_shows_that_the_model_works() {
    let wrong = || Turn::error(Error::new(ErrorKind::InvalidRequest, "no such parameter"));
    let inner = ScriptedModel::new([fail(), fail(), wrong(), fail(), fail(), wrong(), wrong()]);
    let model = breaker().layer(inner.clone());
    assert_eq!(ask_often(&model, &inner, 7).await, 7);
}

fn weather(calls: Arc<AtomicUsize>) -> Tool {
    Tool::function("weather", "Tells the weather.", move |_: String| {
        calls.fetch_add(1, Ordering::Relaxed);
        pending::<Result<String, BoxError>>()
    })
}

#[tokio::test(start_paused = true)]
async fn the_model_is_told_at_once_that_a_tool_is_dead_and_other_tools_work() {
    let calls = Arc::new(AtomicUsize::new(0));
    let turns = (0..4).map(|_| Turn::tool("weather", "Oslo".into()).and_tool("add", json!([1, 2])));
    let model = ScriptedModel::new(turns.chain([Turn::from_text("No idea.")]));
    let agent = Agent::builder(model)
        .tool(weather(calls.clone()))
        .tool(Tool::function("add", "Adds.", |sum: Vec<i64>| {
            sum.into_iter().sum::<i64>()
        }))
        .tool_layer(breaker().failures(2))
        .tool_layer(CallTimeoutLayer::new(Duration::from_secs(10)))
        .build()
        .unwrap();

    let start = Instant::now();
    let response = agent.run("How is the weather?").await.unwrap();

    // Two calls wait for their limit, and the others for nothing.
    assert_eq!(start.elapsed(), Duration::from_secs(20));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let results = results(&response);
    let sums = results.iter().filter(|result| *result == "3").count();
    assert_eq!(sums, 4, "{results:?}");
    let refused = results
        .iter()
        .filter(|result| result.contains("the last 2 calls failed"));
    assert_eq!(refused.count(), 2, "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn names_that_a_model_invents_open_no_circuit() {
    let turns = (0..5).map(|_| Turn::tool("invented", json!({})));
    let model = ScriptedModel::new(turns.chain([Turn::from_text("Well.")]));
    let agent = Agent::builder(model)
        .tool(Tool::function("add", "Adds.", |_: String| "3"))
        .tool_layer(breaker().failures(1).failure_if(|_| true))
        .build()
        .unwrap();
    let response = agent.run("Add.").await.unwrap();
    assert!(
        results(&response)
            .iter()
            .all(|result| !result.contains("not called"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_outside_does_not_wait_and_a_fallback_goes_on() {
    let inner = ScriptedModel::new([fail(), fail(), fail()]);
    let large = CallRetryLayer::new()
        .max_attempts(10)
        .backoff(MILLI, MILLI)
        .layer(breaker().layer(inner.clone()));
    let small = ScriptedModel::always(succeed());
    let model = Fallback::new(large).or(small);

    let start = Instant::now();
    for _ in 0..5 {
        ask(&model).await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn clones_and_agents_share_a_circuit_and_two_layers_do_not() {
    let inner = ScriptedModel::new([fail(), fail(), fail(), succeed()]);
    let layer = breaker();
    let model = layer.layer(inner.clone());
    assert_eq!(ask_often(&model, &inner, 3).await, 3);
    assert_refused(ask(&layer.clone().layer(inner.clone())).await);
    let other = breaker().layer(inner.clone());
    ask(&other).await.unwrap();
}

#[tokio::test]
async fn it_is_as_ready_as_the_service_inside() {
    let mut model = breaker().layer(tower::ServiceBuilder::new().concurrency_limit(1).service(
        service_fn(|_: ModelRequest| pending::<Result<ModelResponse, Error>>()),
    ));
    let running = model.ready().await.unwrap().call(ModelRequest::default());
    assert!(model.ready().now_or_never().is_none());
    drop(running);
    assert!(model.ready().now_or_never().is_some());
}

struct User(&'static str);

fn user(run: &RunContext) -> Result<String, Error> {
    Ok(run.extension::<User>()?.0.to_owned())
}

async fn ask_as(agent: &Agent, user: &'static str) -> Result<AgentResponse, Error> {
    let request = AgentRequest::new("hello").with_extension(User(user));
    agent.run(request).await
}

/// A model that refuses the calls of one user, and says that this user has had enough.
fn limiting(limited: &'static str) -> BoxModel {
    BoxModel::new(service_fn(move |request: ModelRequest| async move {
        if user(request.context())? == limited {
            let refused = Error::new(ErrorKind::RateLimited, "too many requests of yours");
            return Err(refused.with_retry_after(PAUSE * 2));
        }
        Ok::<_, Error>(ModelResponse::from_text("fine"))
    }))
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_user_opens_no_circuit_of_another() {
    let model = BoxModel::new(breaker().by(user).layer(limiting("ann")));
    let agent = Agent::builder(model).build().unwrap();
    for _ in 0..3 {
        let error = ask_as(&agent, "ann").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
    }
    assert_refused(ask_as(&agent, "ann").await);
    ask_as(&agent, "bob").await.unwrap();

    // Her circuit is tested when she was told to come, and not for the calls of others.
    advance(PAUSE * 2 - MILLI).await;
    assert_refused(ask_as(&agent, "ann").await);
    ask_as(&agent, "bob").await.unwrap();
    advance(MILLI).await;
    let error = ask_as(&agent, "ann").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_key_fails_and_is_not_made() {
    let inner = ScriptedModel::always(succeed());
    let model = breaker().by(user).layer(inner.clone());
    let error = ask(&model).await.unwrap_err();
    assert!(error.call().is_some(), "{error}");
    assert!(inner.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_user_has_a_circuit_for_each_tool() {
    let failing = Tool::function("search", "Searches.", |_: ()| {
        Err::<String, _>(Error::new(ErrorKind::Timeout, "too slow"))
    });
    let add = Tool::function("add", "Adds.", |_: ()| "3");
    let turns = [
        Turn::tool("search", json!(null)),
        Turn::tool("search", json!(null)),
        Turn::tool("add", json!(null)),
        Turn::from_text("Done."),
    ];
    let of_two = turns.clone().into_iter().chain(turns);
    let agent = Agent::builder(ScriptedModel::new(of_two))
        .tools([failing, add])
        .tool_layer(breaker().failures(1).by(user))
        .build()
        .unwrap();
    for name in ["ann", "bob"] {
        let response = ask_as(&agent, name).await.unwrap();
        let [first, second, third] = &results(&response)[..] else {
            panic!("{response:?}");
        };
        assert!(first.contains("too slow"), "{name}: {first}");
        assert!(second.contains("not called"), "{name}: {second}");
        assert_eq!(third, "3", "{name}");
    }
}

// The limit had said that it would let nobody through, and meant one user.
#[tokio::test(start_paused = true)]
async fn a_limit_by_key_inside_opens_no_circuit_for_all() {
    let limit = RateLimitLayer::new().requests(1, PAUSE).by(user);
    let limited = limit.max_wait(Duration::ZERO).layer(limiting("nobody"));
    let model = BoxModel::new(breaker().layer(limited));
    let agent = Agent::builder(model).build().unwrap();
    ask_as(&agent, "ann").await.unwrap();
    for _ in 0..5 {
        let error = ask_as(&agent, "ann").await.unwrap_err();
        let exhausted = error.downcast_ref::<Exhausted>();
        assert!(exhausted.is_some_and(|exhausted| exhausted.is_of_key));
    }
    ask_as(&agent, "bob").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_everybody_inside_opens_the_circuit() {
    let limit = RateLimitLayer::new().requests(1, PAUSE * 10);
    let model = breaker().layer(limit.max_wait(Duration::ZERO).layer(limiting("nobody")));
    let agent = Agent::builder(BoxModel::new(model)).build().unwrap();
    ask_as(&agent, "ann").await.unwrap();
    for _ in 0..3 {
        let error = ask_as(&agent, "ann").await.unwrap_err();
        assert!(error.downcast_ref::<Exhausted>().is_some());
    }
    let error = assert_refused(ask_as(&agent, "bob").await);
    assert!(error.downcast_ref::<Exhausted>().is_none());
}
