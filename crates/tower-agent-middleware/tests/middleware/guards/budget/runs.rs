//! Reservations, limits and prices of a budget in whole runs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, advance};
use tower::service_fn;
use tower_agent::callback::{before_agent, on_model_error};
use tower_agent::compat::Semantics;
use tower_agent::{
    Agent, Error, ErrorKind, Message, ModelRequest, ModelResponse, Recovery, Tool, Usage,
};
use tower_agent_middleware::budget::{
    Account, Budget, Exceeded, Limit, Limits, OnExceeding, Spent,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use crate::guards::watch::{busy, ms};
use test_support::log::Log;

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: serde_json::Value| "nothing")
}

/// Turns that take so long, and ask for a tool.
fn slow(turns: usize, seconds: u64) -> Vec<Turn> {
    let turn = || Turn::tool("look", json!({})).latency(SECONDS(seconds));
    (0..turns).map(|_| turn()).collect()
}

fn exceeded(error: &Error) -> Limit {
    error
        .downcast_ref::<Exceeded>()
        .unwrap_or_else(|| panic!("{error}"))
        .limit
}

#[tokio::test]
async fn a_call_made_again_with_its_befores_gives_the_first_reservation_back() {
    let account = Account::new(Limits::new().tokens(5000).reservation(4000));
    let tries = Arc::new(AtomicU32::new(0));
    let model = service_fn(move |_: ModelRequest| {
        let first = tries.fetch_add(1, Ordering::Relaxed) == 0;
        let answer = ModelResponse::new(Message::assistant("done")).with_usage(Usage::new(20, 10));
        std::future::ready(if first { Err(busy()) } else { Ok(answer) })
    });
    let agent = Agent::builder(model)
        .semantics(Semantics::adk_elixir())
        .on_model(Budget::of(account.clone()))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "done");

    let used = account.used();
    assert_eq!(
        (used.model_calls, used.tokens),
        (2, 30),
        "the first attempt has come to nothing"
    );
    assert_eq!(account.reserved(), Spent::default());
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_given_to_the_model_alone_is_enforced() {
    let model = ScriptedModel::new(slow(2, 6));
    let agent = Agent::builder(model.clone())
        .tool(look())
        .on_model(Budget::new(Limits::new().time(SECONDS(10))))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(exceeded(&error), Limit::Time(SECONDS(10)));
    model.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_budget_refuses_exactly_at_the_end_of_its_time() {
    let model = ScriptedModel::new(slow(2, 5));
    let agent = Agent::builder(model.clone())
        .tool(look())
        .on_model(Budget::new(Limits::new().time(SECONDS(10))))
        .build()
        .unwrap();
    let begun = Instant::now();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(begun.elapsed(), SECONDS(10));
    assert_eq!(exceeded(&error), Limit::Time(SECONDS(10)));
    model.assert_done();
}

#[tokio::test(start_paused = true)]
async fn the_time_before_the_first_model_call_counts() {
    let agent = Agent::builder(ScriptedModel::new([]))
        .global_callbacks(Budget::new(Limits::new().time(SECONDS(10))))
        .on_agent(before_agent(|_| advance(SECONDS(10))))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(exceeded(&error), Limit::Time(SECONDS(10)));
}

#[test]
fn a_warning_may_look_at_the_account() {
    let (done, end) = mpsc::channel();
    // A thread of its own: were the account locked, this would wait for ever.
    thread::spawn(move || {
        let known = Arc::new(OnceLock::<Account>::new());
        let looks = known.clone();
        let (say, said) = mpsc::channel();
        let limits = Limits::new()
            .model_calls(2)
            .warn_at(0.5, move |limit, share| {
                let used = looks.get().map(|account| account.used().model_calls);
                say.send((limit, share, used)).unwrap();
            });
        let account = known.get_or_init(|| Account::new(limits));
        let agent = Agent::builder(ScriptedModel::new([Turn::from_text("done")]))
            .on_model(Budget::of(account.clone()))
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(agent.run("?")).unwrap();
        done.send(said.try_iter().collect::<Vec<_>>()).unwrap();
    });

    let said = end
        .recv_timeout(SECONDS(30))
        .expect("the warning does not wait for its own call");

    assert_eq!(said, [(Limit::ModelCalls(2), 0.5, Some(1))]);
}

#[tokio::test]
async fn without_a_price_nothing_costs_anything() {
    let account = Account::new(Limits::new().tokens(10_000));
    let turn = Turn::from_text("done").usage(Usage::new(20, 10));
    let agent = Agent::builder(ScriptedModel::new([turn]))
        .on_model(Budget::of(account.clone()))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let used = account.used();
    assert_eq!((used.tokens, used.cost), (30, 0.0));
}

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

    // The text for the model does not matter here: the script has ended.
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
