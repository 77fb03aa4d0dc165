//! Limits of one tool.

use serde_json::json;
use tower_agent::{Agent, AgentRequest, Resolution};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Account, Budget, Limit, Limits, OnExceeding};
use tower_agent_test::{ScriptedModel, Turn};

use super::exceeded;
use crate::guards::{results, saved, to_open};
use test_support::log::Log;

fn once(what: OnExceeding) -> Limits {
    Limits::new().tool_calls(1).on_exceeding(what)
}

/// Two searches and a look in one turn, then one more search, then an answer.
fn searching() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("search", json!("a"))
            .and_tool("search", json!("b"))
            .and_tool("look", json!("c")),
        Turn::tool("search", json!("d")),
        Turn::from_text("done"),
    ])
}

#[tokio::test]
async fn the_first_calls_of_a_tool_run_and_the_others_are_refused() {
    let log = Log::default();
    let model = searching();
    let agent = Agent::builder(model.clone())
        .tools([log.tool("search"), log.tool("look")])
        .callbacks(Budget::new(once(OnExceeding::Refuse)).of_tools(["search"]))
        // Another limit is another budget.
        .callbacks(Budget::new(once(OnExceeding::Refuse)).of_tools(["look"]))
        .build()
        .unwrap();
    let done = agent.run("?").await.unwrap();
    assert_eq!(done.text(), "done");
    assert_eq!(log.take(), ["search \"a\"", "look \"c\""]);
    let refused = "tool call blocked: this call would exceed the limit: 1 tool call";
    let results = results(&done);
    assert_eq!(results.len(), 4);
    assert!(results[1].starts_with(refused), "{}", results[1]);
    assert!(results[3].starts_with(refused), "{}", results[3]);
    // The model keeps its tools.
    assert_eq!(model.requests()[2].tools().len(), 2);
    // Each run has its own.
    assert!(agent.run("?").await.is_err(), "the script is over");
}

#[tokio::test]
async fn it_can_end_the_run_or_let_the_model_conclude() {
    for what in [OnExceeding::Fail, OnExceeding::Finish] {
        let log = Log::default();
        let model = searching();
        let account = Account::new(once(what));
        let agent = Agent::builder(model.clone())
            .tools([log.tool("search"), log.tool("look")])
            .callbacks(Budget::of(account.clone()).of_tools(["search"]))
            .build()
            .unwrap();
        let ended = agent.run("?").await;
        assert_eq!(log.take(), ["search \"a\"", "look \"c\""]);
        assert_eq!(account.used().tool_calls, 1);
        match what {
            OnExceeding::Fail => {
                assert_eq!(exceeded(&ended.unwrap_err()), Limit::ToolCalls(1));
            }
            _ => {
                // The next turn of the script calls a tool that it has not been shown.
                assert_eq!(model.requests()[1].tools().len(), 0);
            }
        }
    }
}

/// A pause does not lift the limit.
#[tokio::test]
async fn the_limit_goes_on_where_the_run_has_paused() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("search", json!("a")).and_tool("wipe", json!("b")),
        Turn::tool("search", json!("c")),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tools([log.tool("search"), log.tool("wipe")])
        .callbacks(Budget::new(once(OnExceeding::Refuse)).of_tools(["search"]))
        .on_tool(Approval::of_tools(["wipe"]))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["search \"a\""]);
    let yes = Resolution::resolved("agent/m1.1", Decision::Approve);
    let request = AgentRequest::resume(saved(&paused)).with_resolutions(to_open(&paused, [yes]));
    let done = agent.run(request).await.unwrap();
    assert_eq!(done.text(), "done");
    assert_eq!(log.take(), ["wipe \"b\""]);
}

#[tokio::test]
async fn a_tool_that_the_agent_lacks_is_named_when_it_is_built() {
    let built = Agent::builder(searching())
        .callbacks(Budget::new(once(OnExceeding::Refuse)).of_tools(["serach"]))
        .build();
    let error = built.unwrap_err();
    assert!(error.to_string().contains("serach"), "{error}");
}
