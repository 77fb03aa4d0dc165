//! What broke the provider's cached prefix, at the call.

use serde_json::{Value, json};
use tower_agent::callback::before_model;
use tower_agent::{Agent, Request, Tool, Usage};
use tower_agent_console::Console;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{latest, of_kind, service};

fn agent(console: &Console) -> Agent {
    let cached = |tokens| {
        let mut usage = Usage::new(100, 10);
        usage.cached_input_tokens = tokens;
        usage
    };
    let model = ScriptedModel::new([
        Turn::tool("look", json!({})).usage(cached(0)),
        Turn::tool("look", json!({})).usage(cached(40)),
        Turn::from_text("done").usage(cached(90)),
    ]);
    let clock = before_model(|request| {
        if request.context().iteration() == 1 {
            request.add_instructions("canary: it is noon.");
        }
    });
    Agent::builder(model)
        .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
        .on_model(clock.named("clock"))
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_call_says_where_the_prefix_ends_who_did_it_and_what_was_cached() {
    for console in [Console::new(), Console::new().record_content()] {
        agent(&console).run("?").await.unwrap();
        let run = latest(&service(&console)).await;
        let prefixes: Vec<_> = of_kind(&run, "prefix")
            .iter()
            .map(|entry| json!([entry["turn"], entry["on"], entry["changed"], entry["by"]]))
            .collect();
        assert_eq!(
            prefixes,
            [
                json!([1, "model", "instructions", ["clock"]]),
                json!([2, "model", "instructions", ["clock"]]),
            ]
        );
        let cached: Vec<_> = of_kind(&run, "model")
            .iter()
            .map(|entry| entry["attempts"][0]["usage"]["cached_input_tokens"].clone())
            .collect();
        assert_eq!(cached, [0, 40, 90]);
        assert!(!run.to_string().contains("canary"), "no text of it");
    }
}

#[tokio::test]
async fn a_run_that_only_appends_has_none() {
    let console = Console::new();
    let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let run = latest(&service(&console)).await;
    assert!(of_kind(&run, "prefix").is_empty());
}
