//! `pool`

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::limit::ConcurrencyLimitLayer;
use tower::load::{CompleteOnResponse, PeakEwma};
use tower::steer::Steer;
use tower::util::rng::HasherRng;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::stream::{self, EventKind};
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, ModelResponse, Result, Tool};
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use super::mock::{Mock, percentile, refused, timed};
use super::watch::{busy, ms};
use test_support::call;

/// The same numbers in every run.
fn rng() -> HasherRng<BuildHasherDefault<DefaultHasher>> {
    HasherRng::with_hasher(BuildHasherDefault::default())
}

fn pool<const N: usize>(mocks: &[Mock; N]) -> Pool<ModelRequest> {
    Pool::from_rng(
        mocks.each_ref().map(|mock| (mock.name(), mock.model())),
        rng(),
    )
}

async fn ask<M: ModelService>(model: &M) -> Result<ModelResponse> {
    call(model.clone(), ModelRequest::default()).await
}

/// Makes a streamed call, and returns the time to its first delta.
async fn ask_streamed<M: ModelService>(model: &M) -> Result<Duration> {
    let (sink, mut events) = stream::channel(64);
    let request = ModelRequest::default().with_delta_sender(sink);
    let start = Instant::now();
    let reads = async {
        let mut first = None;
        while let Some(event) = events.next().await {
            if matches!(event.kind, EventKind::TextDelta { .. }) {
                first.get_or_insert_with(|| start.elapsed());
            }
        }
        first
    };
    let (result, first) = tokio::join!(call(model.clone(), request), reads);
    result.map(|_| first.expect("it has a delta"))
}

/// The outcome of many calls, of which one begins every five milliseconds.
struct Load {
    times: Vec<Duration>,
    failed: usize,
}

async fn load<F>(calls: u64, call: impl Fn() -> F) -> Load
where
    F: Future<Output = Result<Duration>>,
{
    let all = (0..calls).map(|number| {
        let call = &call;
        async move {
            sleep(ms(5 * number)).await;
            call().await
        }
    });
    let results = join_all(all).await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    let times = results.into_iter().filter_map(Result::ok).collect();
    Load { times, failed }
}

/// Two that are fast, one that is 20 times slower, and one that refuses at once.
fn four() -> [Mock; 4] {
    [
        Mock::new("fast", ms(100)).words(10, ms(10)),
        Mock::new("fast too", ms(100)).words(10, ms(10)),
        Mock::new("slow", ms(2_000)).words(10, ms(10)),
        Mock::new("refuses", ms(1)).failing(|_| true, refused()),
    ]
}

/// Returns the share of the calls of each.
fn shares(mocks: &[Mock]) -> Vec<f64> {
    let calls: Vec<_> = mocks.iter().map(|mock| mock.counts.calls()).collect();
    let all: usize = calls.iter().sum();
    calls
        .iter()
        .map(|calls| *calls as f64 / all as f64)
        .collect()
}

fn round_robin(mocks: &[Mock]) -> BoxModel {
    let next = Arc::new(AtomicUsize::new(0));
    let len = mocks.len();
    let pick = move |_: &ModelRequest, _: &[BoxModel]| next.fetch_add(1, Ordering::Relaxed) % len;
    BoxModel::new(Steer::new(mocks.iter().map(Mock::model), pick))
}

/// Ten seconds in nanoseconds, as tower counts the decay of its load.
const NANOS_10_S: f64 = 1e10;

/// tower's own balancer, by its own load.
fn peak_ewma(mocks: &[Mock]) -> BoxModel {
    let models = mocks.iter().map(|mock| {
        let complete = CompleteOnResponse::default();
        PeakEwma::new(mock.model(), ms(100), NANOS_10_S, complete)
    });
    let list = ServiceList::new::<ModelRequest>(models.collect::<Vec<_>>());
    BoxModel::new(Buffer::new(Balance::from_rng(list, rng()), 1_024))
}

#[tokio::test(start_paused = true)]
async fn of_four_endpoints_the_slow_and_the_refusing_one_draw_nearly_no_calls() {
    for streamed in [false, true] {
        let run = async |model: BoxModel| {
            load(4_000, || async {
                if streamed {
                    return ask_streamed(&model).await;
                }
                let (time, result) = timed(ask(&model)).await;
                result.map(|_| time)
            })
            .await
        };
        let turns = four();
        let mut by_turns = run(round_robin(&turns)).await;
        let by_peak_ewma = four();
        let failed_by_peak_ewma = run(peak_ewma(&by_peak_ewma)).await.failed;
        let balanced = four();
        let mut by_load = run(BoxModel::new(pool(&balanced))).await;

        // By turns, a quarter of the calls fails, and a third of the others is slow.
        assert_eq!(by_turns.failed, 1_000);
        let slowest_by_turns = percentile(&mut by_turns.times, 0.99);
        assert!(slowest_by_turns >= ms(2_000), "{slowest_by_turns:?}");

        // A failure is the fastest of all.
        assert!(failed_by_peak_ewma > 1_500, "{failed_by_peak_ewma}");

        let slowest = percentile(&mut by_load.times, 0.99);
        assert!(slowest <= ms(200), "{slowest:?}");
        let shares = shares(&balanced);
        println!(
            "streamed {streamed}: {slowest_by_turns:?} and {slowest:?}, {shares:?}, {} failed",
            by_load.failed
        );
        assert!(shares[0] > 0.45 && shares[1] > 0.45, "{shares:?}");
        assert!(shares[2] < 0.01, "{shares:?}");
        assert!(shares[3] < 0.01, "{shares:?}");
        assert!(by_load.failed < 40, "{}", by_load.failed);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_equal_speed_share_the_calls_evenly() {
    let mocks = ["a", "b", "c", "d"].map(|name| Mock::new(name, ms(100)));
    let pool = pool(&mocks);
    let load = load(4_000, || {
        timed(ask(&pool)).map(|(time, result)| result.map(|_| time))
    })
    .await;
    assert_eq!(load.failed, 0);
    for share in shares(&mocks) {
        assert!((0.2..0.3).contains(&share), "{share}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_as_open_until_its_end() {
    let mocks = ["a", "b"].map(|name| Mock::new(name, ms(10)).words(100, ms(100)));
    let pool = pool(&mocks);
    let mut first = Box::pin(ask_streamed(&pool));
    assert!(timeout(ms(500), first.as_mut()).await.is_err());
    let busy = mocks.iter().position(|mock| mock.counts.open() == 1);
    // Behind its first delta it is still there.
    let mut second = Box::pin(ask_streamed(&pool));
    assert!(timeout(ms(500), second.as_mut()).await.is_err());
    assert!(busy.is_some());
    assert!(mocks.iter().all(|mock| mock.counts.open() == 1));
    first.await.unwrap();
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_hangs_becomes_expensive_before_its_calls_end() {
    let never = Duration::from_secs(1_000_000);
    let mocks = [Mock::new("hangs", never), Mock::new("works", ms(100))];
    let pool = pool(&mocks);
    let calls: Vec<_> = (0..500)
        .map(|number| {
            let pool = &pool;
            async move {
                sleep(ms(20 * number)).await;
                timeout(Duration::from_secs(5), ask(pool)).await.is_ok()
            }
        })
        .collect();
    let answered = join_all(calls).await.into_iter().filter(|ok| *ok).count();
    assert!(answered >= 480, "{answered}");
    assert!(mocks[0].counts.calls() < 20);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_every_other_call_draws_fewer_calls_than_the_others() {
    // It never fails so often in a row that it would be taken out.
    let mocks = [
        Mock::new("unsteady", ms(20)).failing(|number| number % 2 == 0, busy()),
        Mock::new("a", ms(100)),
        Mock::new("b", ms(100)),
    ];
    let pool = pool(&mocks);
    load(4_000, || {
        timed(ask(&pool)).map(|(time, result)| result.map(|_| time))
    })
    .await;
    let shares = shares(&mocks);
    assert!(shares[0] < 0.05, "{shares:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_at_its_limit_is_left_alone_until_its_reset() {
    let reset = Duration::from_secs(120);
    let refusal = refused().with_retry_after(reset);
    let full = Mock::new("full", ms(1)).failing(|number| number < 1, refusal);
    let mocks = [full, Mock::new("other", ms(100))];
    let pool = pool(&mocks).failures(1);
    while mocks[0].counts.calls() < 1 {
        // The call that it gets fails.
        let _ = ask(&pool).await;
    }
    let start = Instant::now();
    while start.elapsed() < reset - Duration::from_secs(1) {
        ask(&pool).await.unwrap();
    }
    assert_eq!(mocks[0].counts.calls(), 1);
    sleep(Duration::from_secs(1)).await;
    for _ in 0..20 {
        ask(&pool).await.unwrap();
    }
    assert!(mocks[0].counts.calls() > 10, "it works again");
}

#[tokio::test(start_paused = true)]
async fn one_call_tests_an_endpoint_that_was_taken_out() {
    let pause = Duration::from_secs(60);
    let mocks = [
        Mock::new("down", ms(50)).failing(|number| number < 25, busy()),
        Mock::new("other", ms(100)),
    ];
    let pool = pool(&mocks).failures(3).pause(pause);
    let many = || join_all((0..50).map(|_| ask(&pool)));
    many().await;
    let before = mocks[0].counts.calls();
    assert!((3..=25).contains(&before), "{before}");
    let start = Instant::now();
    while start.elapsed() < pause - Duration::from_secs(1) {
        ask(&pool).await.unwrap();
    }
    assert_eq!(mocks[0].counts.calls(), before, "it is out");
    sleep(Duration::from_secs(1)).await;
    many().await;
    assert_eq!(
        mocks[0].counts.calls(),
        before + 1,
        "one call, among fifty at once"
    );
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_all_fail_are_never_all_taken_out() {
    let mocks = ["a", "b", "c"].map(|name| Mock::new(name, ms(1)).failing(|_| true, busy()));
    let pool = pool(&mocks).failures(1).pause(Duration::from_secs(1_000));
    for _ in 0..100 {
        let error = ask(&pool).await.unwrap_err();
        assert_eq!(error.message(), "busy", "a call was made");
    }
    let calls: Vec<_> = mocks.iter().map(|mock| mock.counts.calls()).collect();
    assert_eq!(calls.iter().sum::<usize>(), 100);
    assert!(calls.contains(&98), "one of them stays: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_that_are_the_callers_own_take_nobody_out() {
    let wrong = Error::new(ErrorKind::InvalidRequest, "no such field");
    let mocks = ["a", "b"].map(|name| Mock::new(name, ms(1)).failing(|_| true, wrong.clone()));
    let pool = pool(&mocks).failures(1);
    for _ in 0..100 {
        ask(&pool).await.unwrap_err();
    }
    for mock in &mocks {
        assert!(mock.counts.calls() > 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_gives_a_failed_call_to_another_endpoint() {
    let mocks = [
        Mock::new("down", ms(1)).failing(|_| true, busy()),
        Mock::new("works", ms(100)),
    ];
    let model = CallRetryLayer::new().layer(pool(&mocks));
    for _ in 0..50 {
        assert_eq!(ask(&model).await.unwrap().message().text(), "works ");
    }
    assert!(mocks[0].counts.calls() < 10);
}

/// A refusal that never reaches the provider is fast as well.
#[tokio::test(start_paused = true)]
async fn a_circuit_breaker_or_a_limit_around_an_endpoint_draws_no_calls_to_it() {
    let breaker = CircuitBreakerLayer::new()
        .failures(1)
        .pause(Duration::from_secs(1_000));
    let limit = RateLimitLayer::new()
        .requests(1, Duration::from_secs(1_000))
        .max_wait(ms(0));
    let down = Mock::new("down", ms(1)).failing(|_| true, busy());
    let [limited, works] = ["limited", "works"].map(|name| Mock::new(name, ms(100)));
    let pool = Pool::from_rng(
        [
            ("down", BoxModel::new(breaker.layer(down.model()))),
            ("limited", BoxModel::new(limit.layer(limited.model()))),
            ("works", works.model()),
        ],
        rng(),
    );
    let load = load(2_000, || {
        timed(ask(&pool)).map(|(time, result)| result.map(|_| time))
    })
    .await;
    assert!(load.failed < 20, "{}", load.failed);
    assert_eq!([down.counts.calls(), limited.counts.calls()], [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_leave_nothing_open() {
    let mocks = ["a", "b"].map(|name| Mock::new(name, ms(1_000)).words(5, ms(1_000)));
    let pool = pool(&mocks);
    for at in [0, 1, 500, 1_500, 4_500] {
        for _ in 0..10 {
            let calls = join_all((0..3).map(|_| ask_streamed(&pool)));
            assert!(timeout(ms(at), calls).await.is_err());
        }
    }
    assert_eq!(mocks.each_ref().map(|mock| mock.counts.open()), [0, 0]);
    // Nothing counts any more: both are taken in turns.
    let before = mocks.each_ref().map(|mock| mock.counts.calls());
    sleep(Duration::from_secs(1_000)).await;
    let mut calls = Vec::new();
    for _ in 0..10 {
        let mut call = Box::pin(ask(&pool));
        assert!(call.as_mut().now_or_never().is_none());
        calls.push(call);
    }
    for (mock, before) in mocks.iter().zip(before) {
        assert_eq!(mock.counts.calls() - before, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_endpoint_that_it_is_given_to() {
    // Each lets one call in at a time, as a key of one's own does.
    let mocks = ["a", "b"].map(|name| Mock::new(name, ms(100)));
    let limited = mocks.each_ref().map(|mock| {
        let limited = ConcurrencyLimitLayer::new(1).layer(mock.model());
        (mock.name(), limited)
    });
    let pool = Pool::from_rng(limited, rng());
    let (time, answers) = timed(join_all((0..20).map(|_| ask(&pool)))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(time, ms(1_000));
    assert_eq!(mocks.each_ref().map(|mock| mock.counts.most_open()), [1, 1]);

    // Those that are dropped while they wait leave no trace.
    let mut stalled: Vec<_> = (0..3).map(|_| Box::pin(ask(&pool))).collect();
    for call in &mut stalled {
        assert!(call.as_mut().now_or_never().is_none());
    }
    drop(stalled);
    let (time, answer) = timed(ask(&pool)).await;
    assert!(answer.is_ok());
    assert_eq!(time, ms(100));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_one_endpoint_is_a_failure_of_it() {
    let panics = ScriptedModel::always(Turn::function(|_| panic!("boom")));
    let works = Mock::new("works", ms(1));
    let pool = Pool::from_rng(
        [("panics", BoxModel::new(panics)), ("works", works.model())],
        rng(),
    );
    let pool = pool.failure_if(|_| true).failures(1);
    let results = join_all((0..50).map(|_| ask(&pool))).await;
    assert!(results.iter().any(Result::is_ok));
    for _ in 0..20 {
        ask(&pool).await.unwrap();
    }
}

#[tokio::test]
async fn a_pool_without_endpoints_says_so() {
    let pool = Pool::new(std::iter::empty::<(String, BoxModel)>());
    let error = ask(&pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.message(), "not called: the pool has no endpoint");
}

/// A pool is for any call.
#[tokio::test(start_paused = true)]
async fn a_pool_of_agents_is_an_agent_and_a_pool_stands_in_one() {
    let mocks = ["a", "b"].map(|name| Mock::new(name, ms(1)));
    let agent = Agent::builder(pool(&mocks)).build().unwrap();
    let agents = Pool::new([("first", agent.clone()), ("second", agent)]);
    let tool = Tool::function("look", "Looks.", |_: ()| "nothing");
    let outer = ScriptedModel::new([
        Turn::tool("look", serde_json::json!(null)),
        Turn::from_text("done"),
    ]);
    let answer = agents.oneshot("?".into()).await.unwrap();
    assert!(["a ", "b "].contains(&&*answer.text()));
    let tooled = Agent::builder(Pool::new([("only", outer)])).tool(tool);
    assert_eq!(
        tooled.build().unwrap().run("?").await.unwrap().text(),
        "done"
    );
}

#[test]
fn a_pool_can_be_made_outside_a_runtime_and_used_in_several() {
    let mocks = ["a", "b"].map(|name| Mock::new(name, ms(1)));
    let pool = pool(&mocks);
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(ask(&pool)).unwrap();
    }
}
