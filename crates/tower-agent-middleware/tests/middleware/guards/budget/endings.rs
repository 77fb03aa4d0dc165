//! The end of an agent whose budget is used up.

use std::time::Duration;

use serde_json::json;
use tower_agent::callback::wrap_model;
use tower_agent::compat::Semantics;
use tower_agent::model::ToolChoice;
use tower_agent::{
    Agent, AgentBuilder, EndReason, Error, ErrorKind, ModelRequest, Settings, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limit, Limits, OnExceeding};
use tower_agent_test::{ScriptedModel, Turn};

use super::{busy, exceeded};
use crate::guards::{assert_answered, results};
use test_support::log::Log;

fn finishing(limits: Limits) -> Account {
    Account::new(limits.on_exceeding(OnExceeding::Finish))
}

fn agent(log: &Log, model: &ScriptedModel, account: &Account) -> AgentBuilder {
    let mut settings = Settings::default();
    settings.tool_choice = Some(ToolChoice::Required);
    Agent::builder(model.clone())
        .instructions("Look about.")
        .settings(settings)
        // With a condition that may end the run, a tool is forced in each step.
        .stop_when(|_| false)
        .tool(log.tool("look"))
        .global_callbacks(Budget::of(account.clone()))
}

/// Asserts that the last model call was instructed to conclude, and no other.
#[track_caller]
fn assert_concluded(model: &ScriptedModel) {
    let requests = model.requests();
    for (index, request) in requests.iter().enumerate() {
        let concludes = index + 1 == requests.len();
        assert_eq!(request.tools().is_empty(), concludes, "call {index}");
        assert_eq!(
            request.settings().tool_choice.is_none(),
            concludes,
            "call {index}"
        );
        let told = request.instructions().unwrap();
        assert_eq!(told.contains("Conclude now"), concludes, "call {index}");
        assert!(told.starts_with("Look about."));
    }
}

#[tokio::test]
async fn it_finishes_with_one_call_more_that_is_offered_no_tools() {
    let thousand = || Turn::tool("look", json!(1)).usage(Usage::new(900, 100));
    let slow = |turn: Turn| turn.latency(Duration::from_secs(5));
    let cases = [
        (Limits::new().model_calls(2), busy(2)),
        (
            Limits::new().tokens(2000).reservation(900),
            vec![thousand(), thousand()],
        ),
        (
            Limits::new().cost(2.0, |_, usage| usage.total() as f64 / 1000.0),
            // The first reservation is too much already.
            vec![],
        ),
        (
            Limits::new().time(Duration::from_secs(10)),
            busy(2).into_iter().map(slow).collect(),
        ),
    ];
    for (limits, turns) in cases {
        let log = Log::default();
        tokio::time::pause();
        let account = finishing(limits);
        let ending = Turn::from_text("as far as I know").usage(Usage::new(1, 1));
        let model = ScriptedModel::new(turns.clone().into_iter().chain([ending]));

        let response = agent(&log, &model, &account)
            .build()
            .unwrap()
            .run("?")
            .await
            .unwrap();

        model.assert_done();
        assert_eq!(
            (response.text(), response.end_reason()),
            ("as far as I know".into(), &EndReason::Completed)
        );
        assert_concluded(&model);
        assert_eq!(
            account.used().model_calls,
            turns.len() as u64 + 1,
            "it is counted"
        );
        assert_answered(response.messages());
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_model_that_still_asks_for_tools_is_not_asked_again() {
    let log = Log::default();
    let account = finishing(Limits::new().model_calls(2));
    let model = ScriptedModel::new(busy(3));
    let error = agent(&log, &model, &account)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap_err();

    model.assert_done();
    assert_eq!(exceeded(&error), Limit::ModelCalls(2));
    assert_eq!(
        log.take().len(),
        2,
        "the tool that it was not offered is not run"
    );
    assert_eq!(account.used().model_calls, 3);
}

#[tokio::test]
async fn the_concluding_call_may_be_tried_again() {
    let log = Log::default();
    let account = finishing(Limits::new().model_calls(1));
    let failed = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = ScriptedModel::new([busy(1), vec![failed, Turn::from_text("done")]].concat());
    let retry = wrap_model(|request: ModelRequest, mut next| async move {
        match next.run(request.clone()).await {
            Err(error) if error.is_retryable() => next.run(request).await,
            result => result,
        }
    });
    let agent = Agent::builder(model.clone())
        .tool(log.tool("look"))
        .model_layer(retry)
        .callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "done");
    assert_eq!(account.used().model_calls, 3);
    assert!(
        model.requests()[1..]
            .iter()
            .all(|request| request.tools().is_empty())
    );
}

#[tokio::test]
async fn a_tool_call_beyond_the_limit_is_refused_and_the_agent_finishes() {
    let log = Log::default();
    let account = finishing(Limits::new().tool_calls(2));
    let three = Turn::tool("look", json!(1))
        .and_tool("look", json!(2))
        .and_tool("look", json!(3));
    let model = ScriptedModel::new([three, Turn::from_text("done")]);
    let agent = agent(&log, &model, &account)
        .tool_concurrency(1)
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let refusal = "tool call blocked: this call would exceed the limit: 2 tool calls";
    assert_eq!(results(&response), ["look done", "look done", refusal]);
    assert_concluded(&model);
    assert_eq!((log.take().len(), account.used().tool_calls), (2, 2));
}

#[tokio::test]
async fn a_tool_call_beyond_the_limit_fails_the_run_unless_it_is_to_finish() {
    let log = Log::default();
    let account = Account::new(Limits::new().tool_calls(1));
    let model = ScriptedModel::new(busy(2));
    let error = agent(&log, &model, &account)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap_err();

    model.assert_done();
    assert_eq!(exceeded(&error), Limit::ToolCalls(1));
    assert_eq!(log.take(), ["look 0"]);
}

#[tokio::test]
async fn every_agent_of_the_tree_concludes_once() {
    let log = Log::default();
    let account = finishing(Limits::new().model_calls(2));
    let inner = ScriptedModel::new([busy(1), vec![Turn::from_text("half of it")]].concat());
    let worker = Agent::builder(inner.clone())
        .name("worker")
        .tool(log.tool("look"));
    let worker = worker.build().unwrap().into_tool("");
    let outer = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })),
        Turn::from_text("half an answer"),
    ]);
    let boss = agent(&log, &outer, &account).tool(worker).build().unwrap();

    let response = boss.run("?").await.unwrap();

    assert_eq!(results(&response), ["half of it"]);
    assert_eq!(response.text(), "half an answer");
    assert_concluded(&outer);
    assert!(inner.requests()[1].tools().is_empty());
    assert_eq!(account.used().model_calls, 4);
}

/// In potato_agent a response of a tool's hook does not count; a refusal does all the same.
#[tokio::test]
async fn a_refusal_counts_under_every_semantics() {
    for semantics in [Semantics::potato(), Semantics::trpc()] {
        let log = Log::default();
        let account = finishing(Limits::new().tool_calls(1));
        let model = ScriptedModel::new([busy(2), vec![Turn::from_text("done")]].concat());
        let agent = agent(&log, &model, &account)
            .semantics(semantics)
            .build()
            .unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "done");
        assert_eq!(log.take(), ["look 0"]);
    }
}
