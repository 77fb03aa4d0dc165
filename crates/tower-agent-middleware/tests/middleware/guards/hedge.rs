//! `hedge`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tower::service_fn;
use tower_agent::model::{BoxModel, ModelService, ServerTool};
use tower_agent::stream::{self, Delta, Event, EventKind};
use tower_agent::{
    Agent, Callbacks, Error, ErrorKind, ModelRequest, ModelResponse, Result, Settings, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::mock::{Mock, percentile, refused, timed};
use super::watch::{busy, count, left, ms, shown};
use test_support::call;

/// A model whose first call is the one, and whose later calls are the other.
fn in_turns(first: &Mock, second: &Mock) -> BoxModel {
    let models = [first.model(), second.model()];
    let calls = Arc::new(AtomicUsize::new(0));
    BoxModel::new(service_fn(move |request: ModelRequest| {
        let number = calls.fetch_add(1, Ordering::SeqCst);
        call(models[number.min(1)].clone(), request)
    }))
}

async fn ask<M: ModelService>(model: &M) -> Result<ModelResponse> {
    call(model.clone(), ModelRequest::default()).await
}

async fn read<M: ModelService>(model: &M) -> (Vec<Event>, Result<ModelResponse>) {
    let (sink, events) = stream::channel(64);
    let request = ModelRequest::default().with_delta_sender(sink);
    let (events, result) = tokio::join!(events.collect::<Vec<_>>(), call(model.clone(), request));
    (events, result)
}

fn hedge() -> HedgeLayer {
    HedgeLayer::new(ms(100))
}

#[tokio::test(start_paused = true)]
async fn the_first_delta_wins_and_no_delta_of_the_other_is_ever_seen() {
    // The first begins later than the second, and would end before it.
    let first = Mock::new("first", ms(300)).words(2, ms(1));
    let second = Mock::new("second", ms(150)).words(10, ms(100));
    let model = hedge().layer(in_turns(&first, &second));
    let (time, (events, result)) = timed(read(&model)).await;
    let words = "second ".repeat(10);
    assert_eq!(result.unwrap().message().text(), words);
    assert_eq!(shown(&events), words);
    assert_eq!(time, ms(100 + 150 + 900));
    assert_eq!([first.counts.open(), second.counts.open()], [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_loser_is_dropped_at_the_first_delta() {
    let first = Mock::new("first", Duration::from_secs(1_000));
    let second = Mock::new("second", ms(50)).words(10, ms(100));
    let model = hedge().layer(in_turns(&first, &second));
    let mut call = Box::pin(read(&model));
    assert!(timeout(ms(149), call.as_mut()).await.is_err());
    assert_eq!([first.counts.open(), second.counts.open()], [1, 1]);
    assert!(timeout(ms(2), call.as_mut()).await.is_err());
    assert_eq!([first.counts.open(), second.counts.open()], [0, 1]);
    call.await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_begun_is_never_hedged_however_long_it_takes() {
    let first = Mock::new("first", ms(99)).words(100, ms(100));
    let second = Mock::new("second", ms(1));
    let model = hedge().layer(in_turns(&first, &second));
    let (events, result) = read(&model).await;
    assert!(result.is_ok());
    assert_eq!(shown(&events), "first ".repeat(100));
    assert_eq!(second.counts.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_response_wins_where_nothing_is_streamed() {
    for (first, second, wins, after) in [(300, 150, "second ", 250), (160, 150, "first ", 160)] {
        let [first, second] = [
            Mock::new("first", ms(first)),
            Mock::new("second", ms(second)),
        ];
        let model = hedge().layer(in_turns(&first, &second));
        let (time, result) = timed(ask(&model)).await;
        assert_eq!(result.unwrap().message().text(), wins);
        assert_eq!(time, ms(after));
        assert_eq!([first.counts.open(), second.counts.open()], [0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_does_not_end_the_other() {
    let fails = |name, after| Mock::new(name, ms(after)).failing(|_| true, busy());
    for streamed in [false, true] {
        let run = async |first: &Mock, second: &Mock| {
            let model = hedge().layer(in_turns(first, second));
            if streamed {
                return read(&model).await.1;
            }
            ask(&model).await
        };
        let slow = Mock::new("slow", ms(500));
        let answer = run(&fails("first", 150), &slow).await;
        assert_eq!(answer.unwrap().message().text(), "slow ");
        let answer = run(&slow, &fails("second", 1)).await;
        assert_eq!(answer.unwrap().message().text(), "slow ");

        let error = run(&fails("first", 150), &fails("second", 500))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert_eq!(
            error.message(),
            "busy (both attempts failed; the other: busy)"
        );

        // Before there is another, it is a failure like any.
        let second = Mock::new("second", ms(1));
        let error = run(&fails("first", 50), &second).await.unwrap_err();
        assert_eq!(error.message(), "busy");
        assert_eq!(second.counts.calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_behind_its_first_delta_fails_the_call() {
    let model = ScriptedModel::always(Turn::from_text("some words").failing_after(2, busy()));
    let model = hedge().layer(model.chunk_size(4));
    let (events, result) = read(&model).await;
    assert_eq!(result.unwrap_err().message(), "busy");
    assert_eq!(shown(&events), "some wor");
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_both() {
    let abort = Mock::new("first", ms(150)).failing(|_| true, Error::abort("enough"));
    let slow = Mock::new("second", ms(1_000));
    let model = hedge().layer(in_turns(&abort, &slow));
    let (time, result) = timed(ask(&model)).await;
    assert!(result.unwrap_err().is_ending());
    assert_eq!(time, ms(150));
    assert_eq!(slow.counts.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_tools_that_may_change_something_is_not_hedged() {
    let is_hedged = async |settings: Settings| {
        let mock = Mock::new("slow", ms(1_000));
        let model = hedge().layer(mock.model());
        let request = ModelRequest::default().with_settings(settings);
        call(model, request).await.unwrap();
        mock.counts.calls() == 2
    };
    let with_tool = |tool| {
        let mut settings = Settings::default();
        settings.server_tools = vec![ServerTool::web_search(), tool];
        settings
    };
    assert!(is_hedged(Settings::default()).await);
    assert!(is_hedged(with_tool(ServerTool::web_fetch())).await);
    assert!(!is_hedged(with_tool(ServerTool::code_execution())).await);
    let connector = ServerTool::other("anthropic", json!({ "type": "mcp_toolset" }));
    assert!(!is_hedged(with_tool(connector)).await);
    for field in ["mcp_servers", "tools"] {
        let mut settings = Settings::default();
        settings
            .extra
            .insert(field.into(), json!([{ "url": "https://pay.example" }]));
        assert!(!is_hedged(settings).await, "{field}");
    }

    let mock = Mock::new("slow", ms(1_000));
    let model = hedge().hedge_if(|_| false).layer(mock.model());
    ask(&model).await.unwrap();
    assert_eq!(mock.counts.calls(), 1);
}

/// Returns the tokens and the calls that a call with two attempts is charged.
async fn charged(
    build: impl Fn(BoxModel, Budget) -> Agent,
    first: &Mock,
    second: &Mock,
    streamed: bool,
) -> (u64, u64) {
    let account = Account::new(Limits::new().tokens(1_000_000));
    let agent = build(in_turns(first, second), Budget::of(account.clone()));
    // A prompt of 40 bytes is estimated at 10 tokens, which is what a response of a mock reports.
    let prompt = "0123456789012345678901234567890123456789";
    let answer = if streamed {
        let mut stream = agent.stream(prompt);
        let _: Vec<_> = stream.by_ref().collect().await;
        stream.response().await
    } else {
        agent.run(prompt).await
    };
    assert_eq!(answer.unwrap().text(), "second second ");
    assert_eq!(account.reserved().tokens, 0);
    (account.used().tokens, account.used().model_calls)
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_charged_for_the_loser_wherever_it_stands() {
    let inside_the_model = |model, budget| {
        Agent::builder(hedge().layer(model))
            .global_callbacks(budget)
            .build()
            .unwrap()
    };
    let layer = |model, budget| {
        let agent = Agent::builder(model).global_callbacks(budget);
        agent.model_layer(hedge()).build().unwrap()
    };
    let callback_outside = |model, budget: Budget| {
        let agent = Agent::builder(model).on_model(budget);
        agent.model_layer(hedge()).build().unwrap()
    };
    let builds: [&dyn Fn(BoxModel, Budget) -> Agent; 3] =
        [&inside_the_model, &layer, &callback_outside];
    for (place, build) in builds.into_iter().enumerate() {
        for streamed in [false, true] {
            let first = Mock::new("first", ms(1_000));
            let second = Mock::new("second", ms(10)).words(2, ms(1));
            let charged = charged(build, &first, &second, streamed).await;
            // The answer of the one, and the prompt of the other; one call.
            assert_eq!(charged, (12 + 10, 1), "{place} {streamed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_counts_attempts_counts_both() {
    let account = Account::new(Limits::new().tokens(1_000_000));
    let budget = Callbacks::new().with(Budget::of(account.clone()));
    let slow = Mock::new("first", ms(1_000));
    let model = in_turns(&slow, &Mock::new("second", ms(10)));
    let model = hedge().layer(budget.layer(model));
    ask(&model).await.unwrap();
    assert_eq!(account.used().model_calls, 2);
}

#[tokio::test(start_paused = true)]
async fn a_loser_that_told_its_usage_is_charged_for_that() {
    let account = Account::new(Limits::new().tokens(1_000_000));
    let calls = Arc::new(AtomicUsize::new(0));
    let model = service_fn(move |request: ModelRequest| {
        let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let mut attempt = request.delta_sender().unwrap().open();
            if is_first {
                attempt
                    .send(stream::Piece::Usage(Usage::new(70, 1)))
                    .await?;
                sleep(ms(10_000)).await;
            }
            attempt.send(Delta::Text("done".into())).await?;
            let response = ModelResponse::from(attempt.finish().await?);
            Ok::<_, Error>(response.with_usage(Usage::new(20, 1)))
        }
    });
    for agent in [
        Agent::builder(hedge().layer(model.clone())).global_callbacks(Budget::of(account.clone()))
    ] {
        let mut stream = agent.build().unwrap().stream("?");
        let _: Vec<_> = stream.by_ref().collect().await;
        assert_eq!(stream.response().await.unwrap().text(), "done");
    }
    assert_eq!(account.used().tokens, 71 + 21);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_charged_for_both_attempts() {
    for streamed in [false, true] {
        let account = Account::new(Limits::new().tokens(1_000_000));
        let slow = Mock::new("slow", ms(1_000));
        let agent = Agent::builder(hedge().layer(slow.model()))
            .global_callbacks(Budget::of(account.clone()))
            .build()
            .unwrap();
        let prompt = "0123456789012345678901234567890123456789";
        let run = async {
            if streamed {
                let mut stream = agent.stream(prompt);
                let _: Vec<_> = stream.by_ref().collect().await;
            } else {
                let _ = agent.run(prompt).await;
            }
        };
        assert!(timeout(ms(500), run).await.is_err());
        assert_eq!(slow.counts.calls(), 2);
        assert_eq!(slow.counts.open(), 0);
        assert_eq!(account.used().tokens, 20, "{streamed}");
        assert_eq!(account.reserved().tokens, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_percentile_of_what_was_observed_replaces_the_fixed_delay() {
    // Nine of ten take 100 ms, and one takes a second.
    let model = Mock::new("model", ms(100));
    let slow = Mock::new("model", ms(1_000));
    let calls = Arc::new(AtomicUsize::new(0));
    let models = [model.model(), slow.model()];
    let uneven = service_fn(move |request: ModelRequest| {
        let number = calls.fetch_add(1, Ordering::SeqCst);
        call(models[usize::from(number % 10 == 9)].clone(), request)
    });
    let model = HedgeLayer::new(ms(10_000)).percentile(0.85).layer(uneven);
    let mut times = Vec::new();
    for _ in 0..400 {
        times.push(timed(ask(&model)).await.0);
    }
    // Until enough are known, none is hedged.
    assert_eq!(
        times[..20]
            .iter()
            .filter(|time| **time == ms(1_000))
            .count(),
        2
    );
    let mut later = times.split_off(40);
    assert!(percentile(&mut later, 0.99) <= ms(210), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn when_everything_is_slow_attempts_stay_a_share_of_all_calls() {
    let slow = Mock::new("slow", ms(1_000));
    for model in [
        hedge().layer(slow.model()),
        hedge().percentile(0.9).layer(slow.model()),
    ] {
        let before = slow.counts.calls();
        let calls = (0..1_000).map(|number| {
            let model = &model;
            async move {
                sleep(ms(number)).await;
                ask(model).await
            }
        });
        assert!(join_all(calls).await.iter().all(Result::is_ok));
        // A fifth of the calls, and three a second.
        let calls = slow.counts.calls() - before;
        assert!((1_001..1_300).contains(&calls), "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_around_a_pool_asks_another_endpoint() {
    let mocks = [
        Mock::new("hangs", Duration::from_secs(1_000)),
        Mock::new("works", ms(10)),
    ];
    let pool = Pool::new(mocks.each_ref().map(|mock| (mock.name(), mock.model())));
    let model = hedge().layer(pool);
    for _ in 0..20 {
        let (time, (events, result)) = timed(read(&model)).await;
        assert_eq!(result.unwrap().message().text(), "works ");
        assert_eq!(shown(&events), "works ");
        assert!(time <= ms(110), "{time:?}");
    }
    // The call that was dropped while it waited has made it expensive.
    assert!(mocks[0].counts.calls() <= 2, "{}", mocks[0].counts.calls());
}

#[tokio::test(start_paused = true)]
async fn attempts_are_ready_when_they_are_called() {
    let probe = ProbeLayer::new().pending_polls(2);
    let model = hedge().layer(probe.layer(Mock::new("slow", ms(1_000)).model()));
    ask(&model).await.unwrap();
    assert_eq!(probe.calls(), 2);
    assert_eq!(probe.violations(), 0);
    assert_eq!(probe.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_a_limit_of_one_inside_the_second_waits_for_its_turn() {
    let slow = Mock::new("slow", ms(1_000));
    let limited = tower::limit::ConcurrencyLimitLayer::new(1).layer(slow.model());
    let (time, result) = timed(ask(&hedge().layer(limited))).await;
    assert!(result.is_ok());
    assert_eq!(time, ms(1_000));
    assert_eq!(slow.counts.calls(), 1);
}

/// Around it: a retry, a time limit, a guard that holds deltas back; with two of it; in an agent.
#[tokio::test(start_paused = true)]
async fn it_holds_in_a_stack() {
    let first = Mock::new("first", ms(10_000));
    let second = Mock::new("second", ms(150)).words(3, ms(1));
    let agent = Agent::builder(in_turns(&first, &second))
        .global_callbacks(Redact::new([Detector::email()]).unwrap())
        .model_layer(CallRetryLayer::new())
        .model_layer(CallTimeoutLayer::new(ms(5_000)).first_delta(ms(1_000)))
        .model_layer(HedgeLayer::new(ms(400)))
        .model_layer(hedge())
        .build()
        .unwrap();
    let mut run = agent.stream("?");
    let events: Vec<_> = run.by_ref().collect().await;
    let text = "second ".repeat(3);
    assert_eq!(run.response().await.unwrap().text(), text);
    assert_eq!(left(&events).concat(), text);
    let discarded = |kind: &EventKind| matches!(kind, EventKind::AttemptDiscarded { .. });
    assert_eq!(count(&events, discarded), 0);
}

/// A model may send from a task of its own, so that both are there at once.
#[tokio::test(start_paused = true)]
async fn of_two_attempts_that_send_at_the_same_time_one_is_seen() {
    let calls = Arc::new(AtomicUsize::new(0));
    let model = service_fn(move |request: ModelRequest| {
        let number = calls.fetch_add(1, Ordering::SeqCst);
        let task = tokio::spawn(async move {
            let mut attempt = request.delta_sender().unwrap().open();
            // Both begin at 300 ms.
            sleep(ms(300 - 100 * number as u64)).await;
            for _ in 0..5 {
                attempt.send(Delta::Text(format!("{number} "))).await?;
                tokio::task::yield_now().await;
            }
            Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
        });
        async move { task.await.unwrap() }
    });
    let (events, result) = read(&hedge().layer(model)).await;
    let text = result.unwrap().message().text();
    assert!(["0 0 0 0 0 ", "1 1 1 1 1 "].contains(&&*text), "{text}");
    assert_eq!(shown(&events), text);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_beside_a_slow_answer_is_not_waited_for_by_a_retry() {
    let slow = Mock::new("slow", ms(500));
    let refuses = Mock::new("refuses", ms(1)).failing(|_| true, refused());
    let model = CallRetryLayer::new().layer(hedge().layer(in_turns(&slow, &refuses)));
    let (time, result) = timed(ask(&model)).await;
    assert_eq!(result.unwrap().message().text(), "slow ");
    assert_eq!(time, ms(500));
}
