//! A person's data: what is kept of it, and that it goes.

use serde_json::json;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{Agent, AgentRequest, Tool};
use tower_agent_console::Console;

use crate::world::{User, get, json, runs, service, user_of};

fn agent(console: &Console) -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text("a secret")))
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

async fn run(agent: &Agent, user: &'static str) {
    let request = AgentRequest::new("?").with_extension(User(user));
    agent.run(request).await.unwrap();
}

#[tokio::test]
async fn the_runs_of_a_user_are_exported_and_removed() {
    let console = Console::new().record_content().user_id(user_of);
    let agent = agent(&console);
    for user in ["ada", "bob", "ada"] {
        run(&agent, user).await;
    }
    let exported = console.export_user("ada");
    assert_eq!(exported.len(), 2);
    assert_eq!(exported[0]["run"]["user"], "ada");
    assert!(exported[0].to_string().contains("a secret"));

    let service = service(&console);
    let id = exported[0]["run"]["id"].as_str().unwrap();
    assert_eq!(console.delete_user("ada"), 2);
    assert_eq!(console.delete_user("ada"), 0);
    assert_eq!(console.export_user("ada").len(), 0);
    assert_eq!(get(&service, &format!("/api/runs/{id}")).await.0, 404);
    let left = runs(&service).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["user"], "bob");
}

#[tokio::test]
async fn a_run_that_is_removed_while_it_runs_stays_away() {
    let console = Console::new();
    let service = service(&console);
    let removing = console.clone();
    let inner = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .name("inner")
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("remove", json!({})),
        Turn::tool("inner", json!({ "request": "?" })),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tool(Tool::function(
            "remove",
            "Removes its run.",
            move |_: serde_json::Value| removing.delete_run("r1").to_string(),
        ))
        .tool(inner.into_tool("Says hi."))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let request = || AgentRequest::new("?").with_run_id("r1");
    agent.run(request()).await.unwrap();
    let page = json(&service, "/api/runs").await;
    assert_eq!(page["runs"], json!([]));
    assert!(page["left_out"].as_u64() > Some(0));
}

#[tokio::test]
async fn an_unknown_run_is_not_removed() {
    assert!(!Console::new().delete_run("r1"));
}
