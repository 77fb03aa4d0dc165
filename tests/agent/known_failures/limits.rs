//! Limits of calls, of streams at a time, and of time.

use serde_json::json;
use tokio::time::Instant;
use tower::limit::ConcurrencyLimitLayer;
use tower_agent::stream::{Delta, EventKind};
use tower_agent::testing::{ProbeLayer, ScriptedModel, Turn};
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, ModelResponse, Tool};
use tower_agent_middleware::budget::{Account, Budget, Limits, OnExceeding};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_layer::Layer;

use crate::known_failures::{busy, count, ms, read, shown};
use test_support::log::Log;

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_model_call_inside_of_retries_allows_one_call_of_the_provider() {
    let probe = ProbeLayer::new();
    let agent = Agent::builder(probe.layer(ScriptedModel::always(Turn::error(busy()))))
        .model_layer(CallRetryLayer::new().max_attempts(5))
        .on_model(Budget::new(Limits::new().model_calls(1)))
        .build()
        .unwrap();

    assert_eq!(
        agent.run("?").await.unwrap_err().kind(),
        ErrorKind::BudgetExceeded
    );
    assert_eq!(probe.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_cannot_overspend_together() {
    let account = Account::new(Limits::new().tool_calls(2));
    let log = Log::default();
    let work = {
        let log = log.clone();
        Tool::function("work", "", move |n: u8| {
            let log = log.clone();
            async move {
                log.note(n);
                tokio::time::sleep(ms(10)).await;
                n
            }
        })
    };
    let four = (1..4).fold(Turn::tool("work", json!(0)), |turn, n| {
        turn.and_tool("work", json!(n))
    });
    let agent = Agent::builder(ScriptedModel::new([four]))
        .tool(work)
        .on_tool(Budget::of(account.clone()))
        .build()
        .unwrap();

    // What the model reads of it does not matter here: the script has ended.
    agent.run("?").await.unwrap_err();
    assert_eq!(log.all().len(), 2);
    assert_eq!(
        (account.used().tool_calls, account.reserved().tool_calls),
        (2, 0)
    );
}

#[tokio::test]
async fn an_agent_whose_budget_is_used_up_can_still_conclude() {
    let model = ScriptedModel::new([
        Turn::tool("look", json!(1)),
        Turn::from_text("As far as I know"),
    ]);
    let limits = Limits::new()
        .model_calls(1)
        .on_exceeding(OnExceeding::Finish);
    let agent = Agent::builder(model)
        .tool(Log::default().tool("look"))
        .global_callbacks(Budget::new(limits))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "As far as I know");
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_of_one_admits_one_stream_at_a_time() {
    let probe = ProbeLayer::new();
    let slow = ScriptedModel::always(Turn::from_text("some words").latency(ms(100)));
    let agent = Agent::builder(slow.chunk_size(1))
        .model_layer(ConcurrencyLimitLayer::new(1))
        .model_layer(probe.clone())
        .build()
        .unwrap();
    let start = Instant::now();

    let runs = futures::future::join_all((0..3).map(|_| read(&agent))).await;

    assert!(runs.iter().all(|(_, response)| response.is_ok()));
    assert_eq!((probe.calls(), probe.max_in_flight()), (3, 1));
    assert_eq!(start.elapsed(), ms(300));
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
        let (events, response) = read(&agent).await;
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
