//! The console is bounded, and no run waits for it or fails by it.

use std::time::Duration;

use serde_json::{Value, json};
use tower_agent::callback::after_tool;
use tower_agent::{Action, Agent, Tool, ToolResponse};
use tower_agent_console::Console;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{get, json, latest, of_kind, runs, service};

fn agent(console: &Console, model: ScriptedModel) -> Agent {
    Agent::builder(model)
        .tool(Tool::function("echo", "Repeats.", |text: String| text))
        .max_iterations(10_000)
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_oldest_runs_go_first() {
    let console = Console::new().max_runs(3);
    let service = service(&console);
    let agent = agent(&console, ScriptedModel::always(Turn::from_text("hi")));
    for _ in 0..5 {
        agent.run("?").await.unwrap();
    }
    let page = json(&service, "/api/runs").await;
    let numbers: Vec<_> = page["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["number"])
        .collect();
    assert_eq!(numbers, [5, 4, 3]);
    assert_eq!(page["gone"], 2);
}

#[tokio::test]
async fn memory_is_bounded_in_bytes() {
    let console = Console::new().record_content().max_bytes(400_000);
    let service = service(&console);
    let long = "x".repeat(50_000);
    let agent = agent(&console, ScriptedModel::always(Turn::from_text(long)));
    for _ in 0..20 {
        agent.run("?").await.unwrap();
    }
    let left = runs(&service).await.len();
    assert!((3..=8).contains(&left), "{left} runs of 50 kB in 400 kB");
}

#[tokio::test]
async fn one_run_that_is_too_large_keeps_its_rows() {
    let console = Console::new().record_content().max_bytes(200_000);
    let service = service(&console);
    let call = || Turn::tool("echo", json!({ "value": "x".repeat(50_000) }));
    let turns = (0..6).map(|_| call()).chain([Turn::from_text("done")]);
    agent(&console, ScriptedModel::new(turns))
        .run("?")
        .await
        .unwrap();
    let run = latest(&service).await;
    assert_eq!(of_kind(&run, "tool").len(), 6);
    assert_eq!(run["run"]["status"], "completed");
    assert!(run["run"]["left_out"].as_u64() > Some(0));
}

#[tokio::test]
async fn a_line_of_ten_megabytes_is_cut() {
    let console = Console::new().record_content();
    let service = service(&console);
    let line = "é".repeat(5 << 20);
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "value": line })),
        Turn::from_text(line.clone()),
    ]);
    agent(&console, model).run(line.clone()).await.unwrap();
    let run = latest(&service).await;
    let id = run["run"]["id"].as_str().unwrap();
    for entry in run["entries"].as_array().unwrap() {
        let (status, text) = get(&service, &format!("/api/runs/{id}/content/{}", entry["n"])).await;
        assert_eq!(status, 200);
        assert!(
            text.len() < 400_000,
            "{} bytes of {}",
            text.len(),
            entry["kind"]
        );
    }
    let tool = of_kind(&run, "tool")[0];
    let path = format!("/api/runs/{id}/content/{}", tool["n"]);
    let content = json(&service, &path).await;
    assert_eq!(
        content["output"]["length"],
        line.len() + 2,
        "as JSON, with its quotes"
    );
}

#[tokio::test]
async fn a_run_is_told_of_in_pages() {
    let console = Console::new();
    let service = service(&console);
    let turns = (0..500).map(|_| Turn::tool("echo", json!({ "value": "x" })));
    let model = ScriptedModel::new(turns.chain([Turn::from_text("done")]));
    agent(&console, model).run("?").await.unwrap();
    let id = runs(&service).await[0]["id"].as_str().unwrap().to_owned();
    let mut seen = 0;
    let mut next = json!(0);
    while !next.is_null() {
        let page = json(&service, &format!("/api/runs/{id}?from={next}")).await;
        for entry in page["entries"].as_array().unwrap() {
            assert_eq!(entry["n"], seen);
            seen += 1;
        }
        next = page["next"].clone();
    }
    assert_eq!(
        seen,
        1 + 501 + 501 + 500,
        "an agent, its turns, model and tool calls"
    );
}

/// Nobody reads: not even the console's own thread, which this many events are too many for.
#[tokio::test]
async fn what_is_too_much_is_counted_and_no_run_waits() {
    let console = Console::new();
    let service = service(&console);
    let turns = (0..6_000).map(|_| Turn::tool("echo", json!({ "value": "x" })));
    let model = ScriptedModel::new(turns.chain([Turn::from_text("done")]));
    let agent = agent(&console, model);
    let run = agent.run("?");
    let response = tokio::time::timeout(Duration::from_secs(60), run)
        .await
        .unwrap();
    assert_eq!(response.unwrap().text(), "done");
    let page = json(&service, "/api/runs").await;
    let kept = page["runs"][0]["entries"].as_u64().unwrap();
    let left_out = page["left_out"].as_u64().unwrap();
    assert!(kept > 0);
    // An agent, 6,001 turns and model calls, and 6,000 tool calls, each told of at its begin.
    assert!(
        kept == 18_003 || left_out > 0,
        "{kept} kept, {left_out} left out"
    );
}

#[tokio::test]
async fn a_user_function_that_panics_fails_no_run() {
    let console = Console::new().user_id(|_| panic!("no user"));
    let service = service(&console);
    let agent = agent(&console, ScriptedModel::always(Turn::from_text("hi")));
    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
    assert_eq!(runs(&service).await[0]["user"], Value::Null);
}

#[test]
fn a_console_needs_no_runtime_and_outlives_one() {
    let console = Console::new();
    let service = service(&console);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let agent = agent(&console, ScriptedModel::always(Turn::from_text("hi")));
        runtime.block_on(agent.run("?")).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(runs(&service)).len(), 2);
}

#[tokio::test]
async fn an_agent_outlives_its_console() {
    let console = Console::new();
    let agent = agent(&console, ScriptedModel::always(Turn::from_text("hi")));
    drop(console);
    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
}

#[tokio::test]
async fn a_value_that_is_nested_deeply_is_not_kept() {
    let console = Console::new().record_content();
    let service = service(&console);
    let deep = (0..1_000).fold(json!(null), |inside, _| Value::Array(vec![inside]));
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "value": "x" })),
        Turn::from_text("done"),
    ]);
    let deepen = after_tool(move |_, _| Action::Respond(ToolResponse::new(deep.clone())));
    let agent = Agent::builder(model)
        .tool(Tool::function("echo", "Repeats.", |text: String| text))
        .on_tool(deepen)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    // Whether the agent takes it or not, the console is there afterwards.
    let _ = agent.run("?").await;
    let run = latest(&service).await;
    let id = run["run"]["id"].as_str().unwrap();
    let path = format!("/api/runs/{id}/content/{}", of_kind(&run, "tool")[0]["n"]);
    let content = json(&service, &path).await;
    assert_eq!(content["output"], "nested too deeply to be kept");
}

#[tokio::test]
async fn an_old_run_goes_by_itself() {
    let console = Console::new().max_age(Duration::ZERO);
    let service = service(&console);
    let agent = agent(&console, ScriptedModel::always(Turn::from_text("hi")));
    agent.run("?").await.unwrap();
    let page = json(&service, "/api/runs").await;
    assert_eq!(page["runs"], json!([]));
    assert_eq!(page["gone"], 1);
}
