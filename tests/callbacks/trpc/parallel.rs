//! Several tool calls of one turn.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};
use tower_agent::callback::{Outcome, after_tool, before_tool};
use tower_agent::{Callback, Error, ErrorKind, Request, Tool, ToolRequest, ToolResponse};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use super::{agent, texts, told};
use test_support::log::Log;

/// A calculator that works as many milliseconds as its arguments say, and only when three of its
/// calls are on their way.
fn calculator() -> Tool {
    let all_here = Arc::new(Barrier::new(3));
    Tool::function("calculator", "", move |milliseconds: u64| {
        let all_here = all_here.clone();
        async move {
            all_here.wait().await;
            sleep(Duration::from_millis(milliseconds)).await;
            milliseconds
        }
    })
}

fn three_calls() -> ScriptedModel {
    let turn = Turn::tool("calculator", json!(30))
        .and_tool("calculator", json!(10))
        .and_tool("calculator", json!(20));
    ScriptedModel::new([turn, Turn::from_text("done")])
}

#[derive(Clone, Copy)]
struct Started(Instant);

#[tokio::test(start_paused = true)]
async fn calls_of_one_tool_are_timed_apart_by_their_extensions() {
    let took = Log::default();
    let agent = agent(three_calls())
        .tool(calculator())
        .on_tool(before_tool(|request| {
            request.extensions_mut().insert(Started(Instant::now()));
        }))
        .on_tool(after_tool({
            let took = took.clone();
            move |request, _| {
                let started = request.extensions().get::<Started>().unwrap().0;
                took.push((request.id().to_owned(), started.elapsed().as_millis()));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let expected = [("call_2", 10), ("call_3", 20), ("call_1", 30)];
    assert_eq!(took.take(), expected.map(|(id, ms)| (id.to_owned(), ms)));
}

fn key(request: &ToolRequest) -> String {
    format!("tool:{}:{}:start_time", request.name(), request.id())
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_tool_are_timed_apart_by_values_under_their_ids() {
    let (took, left) = (Log::default(), Log::default());
    let agent = agent(three_calls())
        .tool(calculator())
        .tool_layer(tower_agent::callback::wrap_tool(
            |request, mut next| async move {
                // So that the calls do not start at one instant either.
                sleep(Duration::from_millis(
                    request.arguments()["value"].as_u64().unwrap(),
                ))
                .await;
                next.run(request).await
            },
        ))
        .on_tool(before_tool(|request| {
            request.context().values().set(key(request), Instant::now());
        }))
        .on_tool(after_tool({
            let (took, left) = (took.clone(), left.clone());
            move |request, response| {
                let values = request.context().values();
                let started = values.get::<Instant>(&key(request)).unwrap().unwrap();
                took.push((response.value().clone(), started.elapsed().as_millis()));
                assert!(values.remove(&key(request)));
                left.push(values.get::<Instant>(&key(request)).unwrap().is_some());
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    // All three wait for the last, which starts at 30 ms.
    let expected = [(10, 20 + 10), (20, 10 + 20), (30, 30)];
    let mut took = took.take();
    took.sort_by_key(|(value, _)| value.as_u64());
    assert_eq!(took, expected.map(|(n, ms)| (json!(n), ms)));
    assert_eq!(left.take(), [false; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_side_by_side_share_nothing() {
    let agent = agent(ScriptedModel::always(Turn::from_text("ok")))
        .on_model(tower_agent::callback::before_model(|request| {
            let values = request.context().values();
            assert_eq!(values.get::<String>("run").unwrap(), None);
            values.set("run", request.context().run_id().to_owned());
        }))
        .on_model(tower_agent::callback::after_model_async(checks_its_run))
        .build()
        .unwrap();

    let runs: Vec<_> = (0..16).map(|_| tokio::spawn(agent.run("?"))).collect();
    for run in runs {
        run.await.unwrap().unwrap();
    }
}

async fn checks_its_run(request: &tower_agent::ModelRequest, _: &tower_agent::ModelResponse) {
    tokio::task::yield_now().await;
    let context = request.context();
    let of_run = context.values().get::<String>("run").unwrap().unwrap();
    assert_eq!(*of_run, context.run_id());
}

#[tokio::test]
async fn calls_that_run_together_count_together_in_the_runs_values() {
    let seen = Log::default();
    let agent = agent(three_calls())
        .tool(calculator())
        .on_tool(before_tool(|request| {
            request
                .context()
                .values()
                .update("calls", |calls: &mut u32| *calls += 1)
                .unwrap();
        }))
        .on_agent(tower_agent::callback::after_agent({
            let seen = seen.clone();
            move |request, _| {
                seen.push(
                    *request
                        .context()
                        .values()
                        .get::<u32>("calls")
                        .unwrap()
                        .unwrap(),
                )
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(seen.take(), [3]);
}

/// Fails as its arguments say.
fn fragile() -> Tool {
    Tool::function("act", "", async |how: String| match &*how {
        "slow" => {
            sleep(Duration::from_millis(50)).await;
            Ok(ToolResponse::new("slow but sure"))
        }
        "error" => Err(Error::from("disk full")),
        "panic" => panic!("no disk"),
        _ => Err(Error::abort("stop")),
    })
}

/// How calls ended.
#[derive(Clone)]
struct Ends(Log<String>);

impl Callback<ToolRequest> for Ends {
    fn on_end(&self, request: &ToolRequest, outcome: Outcome<'_, ToolResponse>) {
        let how = match outcome {
            Outcome::Done(_) => "done".to_owned(),
            Outcome::Failed(error) => error.kind().to_string(),
            _ => "dropped".to_owned(),
        };
        self.0.push(format!(
            "{}: {how}",
            request.arguments()["value"].as_str().unwrap_or_default()
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_failure_leaves_the_calls_beside_it_alone() {
    for (how, text) in [
        ("error", "tool failed: disk full"),
        ("panic", "tool failed: the tool panicked: no disk"),
    ] {
        let turn = Turn::tool("act", json!("slow"))
            .and_tool("act", json!(how))
            .and_tool("act", json!("slow"));
        let model = ScriptedModel::new([turn, Turn::from_text("done")]);
        let agent = agent(model).tool(fragile()).build().unwrap();

        let response = agent.run("?").await.unwrap();

        let results = told(&response);
        assert_eq!(texts(&results), ["slow but sure", text, "slow but sure"]);
        assert_eq!(
            results.iter().map(|r| r.is_error).collect::<Vec<_>>(),
            [false, true, false]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_cancels_the_calls_beside_it() {
    let ends = Ends(Log::default());
    let model = ScriptedModel::new([Turn::tool("act", json!("slow"))
        .and_tool("act", json!("error"))
        .and_tool("act", json!("abort"))
        .and_tool("act", json!("slow"))]);
    let probe = ProbeLayer::new();
    let agent = agent(model)
        .tool(fragile())
        .on_tool(ends.clone())
        .tool_layer(probe.clone())
        .build()
        .unwrap();
    let start = Instant::now();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "stop")
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(probe.in_flight(), 0);
    let ends = ends.0.take();
    assert_eq!(ends[..2], ["error: tool failed", "abort: aborted"]);
    assert!(
        ends[2..].iter().all(|end| end == "slow: dropped"),
        "{ends:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn results_stand_in_the_order_of_the_calls() {
    let agent = agent(three_calls()).tool(calculator()).build().unwrap();
    assert_eq!(
        texts(&told(&agent.run("?").await.unwrap())),
        ["30", "10", "20"]
    );
}

#[tokio::test]
async fn the_calls_of_a_turn_may_run_one_by_one() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!("error")).and_tool("act", json!("abort")),
        Turn::from_text("never"),
    ]);
    let probe = ProbeLayer::new();
    let agent = agent(model)
        .tool(fragile())
        .tool_concurrency(1)
        .tool_layer(probe.clone())
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!((probe.calls(), probe.max_in_flight()), (2, 1));
}
