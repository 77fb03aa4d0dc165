//! Several tool calls in one turn.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_agent::callback::{Outcome, after_tool, before_tool, on_tool_error};
use tower_agent::{Callback, Recovery, Request, Result, Tool, ToolRequest, ToolResponse};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, told};
use test_support::log::Log;

/// A model that asks for both tools at once, and is then done.
fn asks(first: &str, second: &str) -> ScriptedModel {
    let both = Turn::tool(first, json!({})).and_tool(second, json!({}));
    ScriptedModel::new([both, Turn::from_text("done")])
}

/// Two tools, the first of which ends only when the second has.
fn slow_and_fast(log: &Log) -> [Tool; 2] {
    let fast_is_done = Arc::new(Notify::new());
    let slow = Tool::function("slow", "", {
        let (log, fast_is_done) = (log.clone(), fast_is_done.clone());
        move |_: Value| {
            let (log, fast_is_done) = (log.clone(), fast_is_done.clone());
            async move {
                log.note("slow begins");
                fast_is_done.notified().await;
                log.note("slow ends");
                "slow's"
            }
        }
    });
    let fast = Tool::function("fast", "", {
        let log = log.clone();
        move |_: Value| {
            let (log, fast_is_done) = (log.clone(), fast_is_done.clone());
            async move {
                log.note("fast begins");
                tokio::task::yield_now().await;
                log.note("fast ends");
                fast_is_done.notify_one();
                "fast's"
            }
        }
    });
    [slow, fast]
}

#[tokio::test]
async fn the_calls_of_a_turn_run_side_by_side_and_are_answered_in_their_order() {
    let log = Log::default();
    let model = asks("slow", "fast");
    let note = |when: &'static str| {
        let log = log.clone();
        move |request: &ToolRequest| log.note(format!("{when} {}", request.name()))
    };
    let (before, after) = (note("before"), note("after"));
    let agent = adk(&model)
        .tools(slow_and_fast(&log))
        .on_tool(before_tool(move |request| before(request)))
        .on_tool(after_tool(move |request, _| after(request)))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        log.take(),
        [
            "before slow",
            "slow begins",
            "before fast",
            "fast begins",
            "fast ends",
            "after fast",
            "slow ends",
            "after slow"
        ]
    );
    assert_eq!(told(&response), ["slow's", "fast's"]);
    model.assert_done();
}

#[tokio::test]
async fn calls_that_do_not_wait_run_one_after_another_with_their_callbacks() {
    let log = Log::default();
    let note = |when: &'static str| {
        let log = log.clone();
        move |request: &ToolRequest| log.note(format!("{when} {}", request.id()))
    };
    let (before, runs, after) = (note("before"), note("runs"), note("after"));
    let agent = adk(&asks("tool", "tool"))
        .tool(Tool::function_with(
            "tool",
            "",
            move |_: Value, request: ToolRequest| runs(&request),
        ))
        .on_tool(before_tool(move |request| before(request)))
        .on_tool(after_tool(move |request, _| after(request)))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let call = |id: u32| ["before", "runs", "after"].map(|when| format!("{when} call_{id}"));
    assert_eq!(log.take(), [call(1), call(2)].concat());
}

/// Writes down how each tool call ended.
struct Ends(Log);

impl Callback<ToolRequest> for Ends {
    fn on_end(&self, request: &ToolRequest, outcome: Outcome<'_, ToolResponse>) {
        let how = match outcome {
            Outcome::Done(_) => "done",
            Outcome::Failed(_) => "failed",
            _ => "dropped",
        };
        self.0.note(format!("{} {how}", request.name()));
    }
}

#[tokio::test]
async fn a_failure_that_is_not_recovered_cancels_its_sibling_calls() {
    let log = Log::default();
    let model = asks("endless", "broken");
    let asked = log.clone();
    let agent = adk(&model)
        .tool(Tool::function("endless", "", |_: Value| {
            std::future::pending::<()>()
        }))
        .tool(Tool::function("broken", "", |_: Value| {
            Err::<(), _>("out of paper")
        }))
        .on_tool(Ends(log.clone()))
        .on_tool(on_tool_error(move |request, _| {
            asked.note(format!("asks {}", request.name()))
        }))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.message(), "out of paper");
    assert_eq!(error.call().unwrap().name.as_deref(), Some("broken"));
    assert_eq!(
        log.take(),
        ["asks broken", "broken failed", "endless dropped"]
    );
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_recovered_failure_leaves_the_calls_beside_it_alone() {
    let log = Log::default();
    let agent = adk(&asks("slow", "broken"))
        .tool(Tool::function("slow", "", async |_: Value| {
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            "slow's"
        }))
        .tool(Tool::function("broken", "", |_: Value| {
            Err::<(), _>("out of paper")
        }))
        .on_tool(Ends(log.clone()))
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("recovered"))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(told(&response), ["slow's", "recovered"]);
    assert_eq!(log.take(), ["broken done", "slow done"]);
}

#[tokio::test]
async fn calls_side_by_side_share_the_state_and_the_last_to_write_wins() {
    let log = Log::default();
    let agent = adk(&asks("slow", "fast"))
        .tools(slow_and_fast(&log))
        .on_tool(after_tool(|request, _| {
            let state = request.context().state();
            state.set("last", request.name());
            state.set(format!("{} is done", request.name()), true);
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let delta = response.state().delta().set;
    let expected = json!({ "last": "slow", "slow is done": true, "fast is done": true });
    assert_eq!(Value::Object(delta), expected);
}

/// Data of one call.
struct Mine(String);

#[tokio::test]
async fn data_of_one_call_is_not_seen_by_the_call_beside_it() {
    let log = Log::default();
    let agent = adk(&asks("slow", "fast"))
        .tools(slow_and_fast(&Log::default()))
        .on_tool(before_tool(|request| {
            let mine = Mine(request.name().to_owned());
            assert!(request.extensions_mut().insert(mine).is_none());
        }))
        .on_tool(after_tool({
            let log = log.clone();
            move |request, _| -> Result<()> {
                let mine = request
                    .extensions()
                    .get::<Mine>()
                    .ok_or("nothing was kept")?;
                log.note(format!("{} kept {}", request.name(), mine.0));
                Ok(())
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(log.take(), ["fast kept fast", "slow kept slow"]);
}
