//! Tools that fail, tools that do not exist, several tools at once.

use std::time::Duration;

use serde_json::{Value, json};
use tower_agent::callback::{ToolCalls, ToolFailure, UnknownTool, before_tool, on_tool_error};
use tower_agent::compat::Semantics;
use tower_agent::{
    Agent, AgentBuilder, AgentResponse, Error, ErrorKind, Recovery, Tool, ToolResponse,
};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use crate::semantics::{echo, results, with};
use test_support::trace::Trace;

// A tool that fails

/// One tool fails at once, the other would take its time.
fn failing(model: &ScriptedModel, probe: &ProbeLayer, semantics: Semantics) -> AgentBuilder {
    Agent::builder(model.clone())
        .tool(Tool::function("fail", "", |_: Value| {
            Err::<(), _>("disk full")
        }))
        .tool(Tool::function("sleep", "", async |_: Value| {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            "rested"
        }))
        .semantics(semantics)
        .tool_layer(probe.clone())
}

fn fails_beside_another() -> Turn {
    Turn::tool("sleep", json!(null)).and_tool("fail", json!(null))
}

#[tokio::test(start_paused = true)]
async fn the_model_reads_the_error_of_a_tool_and_its_sibling_calls_finish() {
    let semantics = with(|run| run.tool_failure = ToolFailure::TellModel);
    assert_eq!(semantics, Semantics::default());
    let model = ScriptedModel::new([fails_beside_another(), Turn::from_text("sorry")]);
    let probe = ProbeLayer::new();
    let agent = failing(&model, &probe, semantics).build().unwrap();
    let response = agent.run("?").await.unwrap();
    model.assert_done();
    assert_eq!(results(&response), ["rested", "tool failed: disk full"]);
    assert_eq!(probe.cancelled(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_run_fails_with_the_tool_and_drops_the_calls_beside_it() {
    let semantics = with(|run| run.tool_failure = ToolFailure::FailRun);
    let model = ScriptedModel::new([fails_beside_another()]);
    let probe = ProbeLayer::new();
    let agent = failing(&model, &probe, semantics).build().unwrap();
    let error = agent.run("?").await.unwrap_err();
    model.assert_done();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Tool, "disk full")
    );
    assert_eq!(error.call().unwrap().name.as_deref(), Some("fail"));
    assert_eq!(
        (probe.calls(), probe.cancelled(), probe.in_flight()),
        (2, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_a_callback_recovers_does_not_fail_the_run() {
    let semantics = with(|run| run.tool_failure = ToolFailure::FailRun);
    let model = ScriptedModel::new([fails_beside_another(), Turn::from_text("fine")]);
    let probe = ProbeLayer::new();
    let agent = failing(&model, &probe, semantics)
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::error("try later"))
        }))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(results(&response), ["rested", "try later"]);
}

// A tool that does not exist

/// Runs an agent without tools; what its tool callbacks saw, and what became of the run.
async fn unknown(semantics: Semantics) -> (Vec<String>, Result<AgentResponse, Error>) {
    let trace = Trace::default();
    let model = ScriptedModel::new([Turn::tool("nope", json!(null)), Turn::from_text("sorry")]);
    let (before, on_error) = (trace.clone(), trace.clone());
    let agent = Agent::builder(model)
        .semantics(semantics)
        .on_tool(before_tool(move |request| before.push(request.name())))
        .on_tool(on_tool_error(move |_, error| {
            on_error.push(error.kind().to_string())
        }))
        .build()
        .unwrap();
    let result = agent.run("?").await;
    (
        trace.take().split_whitespace().map(String::from).collect(),
        result,
    )
}

#[tokio::test]
async fn an_unknown_tool_passes_the_callbacks_and_the_model_reads_the_error() {
    let semantics = with(|run| run.unknown_tool = UnknownTool::Callbacks);
    assert_eq!(semantics, Semantics::default());
    let (seen, result) = unknown(semantics).await;
    assert_eq!(seen, ["nope", "unknown", "tool"]);
    let told = results(&result.unwrap());
    assert_eq!(
        told,
        ["unknown tool: `nope` is not registered; there are no tools"]
    );
}

#[tokio::test]
async fn the_model_reads_the_error_of_an_unknown_tool_and_no_callback_runs() {
    let (seen, result) = unknown(with(|run| run.unknown_tool = UnknownTool::TellModel)).await;
    assert_eq!(seen, [""; 0]);
    let told = results(&result.unwrap());
    assert_eq!(
        told,
        ["unknown tool: `nope` is not registered; there are no tools"]
    );
}

#[tokio::test]
async fn an_unknown_tool_fails_the_run_unless_a_callback_recovers_it() {
    let semantics = with(|run| run.unknown_tool = UnknownTool::FailRun);
    let (seen, result) = unknown(semantics).await;
    assert_eq!(seen, ["nope", "unknown", "tool"]);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::UnknownTool);

    let model = ScriptedModel::new([Turn::tool("nope", json!(null)), Turn::from_text("sorry")]);
    let agent = Agent::builder(model)
        .semantics(semantics)
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::error("no such thing"))
        }))
        .build()
        .unwrap();
    assert_eq!(results(&agent.run("?").await.unwrap()), ["no such thing"]);
}

/// An unknown tool and a failing one are different questions.
#[tokio::test]
async fn an_unknown_tool_does_not_fail_a_run_that_only_failing_tools_do() {
    let (_, result) = unknown(with(|run| run.tool_failure = ToolFailure::FailRun)).await;
    assert_eq!(result.unwrap().text(), "sorry");
    let (_, result) = unknown(Semantics::adk_python()).await;
    assert_eq!(result.unwrap().text(), "sorry");
}

/// As of an agent that works as a tool, and whose own model called a tool that does not exist.
#[tokio::test]
async fn a_known_tool_that_fails_for_an_unknown_one_is_a_tool_that_fails() {
    for (semantics, fails) in [
        (with(|run| run.tool_failure = ToolFailure::FailRun), true),
        (with(|run| run.unknown_tool = UnknownTool::FailRun), false),
    ] {
        let inner = || Error::new(ErrorKind::UnknownTool, "there is no tool `nope`");
        let model = ScriptedModel::new([Turn::tool("helper", json!(1)), Turn::from_text("sorry")]);
        let agent = Agent::builder(model)
            .tool(Tool::function("helper", "", move |_: Value| {
                Err::<(), _>(inner())
            }))
            .semantics(semantics)
            .build()
            .unwrap();
        assert_eq!(agent.run("?").await.is_err(), fails, "{semantics:?}");
    }
}

// Several tool calls

#[tokio::test(start_paused = true)]
async fn tool_calls_of_a_turn_run_side_by_side_or_one_by_one_and_answer_in_order() {
    for (tool_calls, at_once, takes) in
        [(ToolCalls::Concurrent, 2, 30), (ToolCalls::OneByOne, 1, 50)]
    {
        let turn = Turn::tool("wait", json!(30)).and_tool("wait", json!(20));
        let probe = ProbeLayer::new();
        let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
            .tool(Tool::function("wait", "", async |milliseconds: u64| {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                milliseconds
            }))
            .semantics(with(|run| run.tool_calls = tool_calls))
            .tool_layer(probe.clone())
            .build()
            .unwrap();
        let start = tokio::time::Instant::now();
        let response = agent.run("?").await.unwrap();
        assert_eq!(
            start.elapsed(),
            Duration::from_millis(takes),
            "{tool_calls:?}"
        );
        assert_eq!(probe.max_in_flight(), at_once, "{tool_calls:?}");
        assert_eq!(results(&response), ["30", "20"], "{tool_calls:?}");
    }
}

#[tokio::test]
async fn one_by_one_a_failure_of_the_run_starts_none_of_the_calls_behind_it() {
    let model = ScriptedModel::new([Turn::tool("fail", json!(null)).and_tool("echo", json!(1))]);
    let probe = ProbeLayer::new();
    let agent = failing(&model, &probe, Semantics::potato())
        .tool(echo())
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Tool);
    assert_eq!(probe.calls(), 1);
}

/// The run waits, whatever else fails it; what had been answered is not asked again.
#[tokio::test]
async fn results_beside_a_call_that_waits_stay_where_another_fails_the_run() {
    let turn = Turn::tool("echo", json!("done"))
        .and_tool("wait", json!(null))
        .and_tool("fail", json!(null));
    let wait = Tool::function("wait", "", |_: Value| {
        Err::<(), _>(Error::interrupt(tower_agent::Interrupt::new(
            "w", "somebody",
        )))
    });
    let agent = Agent::builder(ScriptedModel::new([turn]))
        .tool(echo())
        .tool(wait)
        .tool(Tool::function("fail", "", |_: Value| {
            Err::<(), _>("disk full")
        }))
        .semantics(with(|run| run.tool_failure = ToolFailure::FailRun))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.interrupts()[0].name, "w");
    assert_eq!(results(&response), ["done", "tool failed: disk full"]);
}
