//! What the runs of agents look like.

use std::time::Duration;

use serde_json::{Value, json};
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{Bundle, before_model, before_tool, on_model_error};
use tower_agent::context::ConversationId;
use tower_agent::message::{Metadata, ToolCall};
use tower_agent::{
    Action, Agent, AgentRequest, Error, ErrorKind, Interrupt, ModelResponse, Recovery,
    Request as _, Tool, ToolResponse, Usage,
};
use tower_agent_console::Console;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{User, get, json, latest, of_kind, runs, service, user_of};

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: Value| "nothing")
}

fn asks_and_answers() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("look", json!({})).usage(Usage::new(10, 3)),
        Turn::from_text("Nothing.").usage(Usage::new(20, 2)),
    ])
}

#[tokio::test]
async fn a_run_is_a_tree_of_turns_and_calls() {
    let console = Console::new().user_id(user_of);
    let agent = Agent::builder(asks_and_answers())
        .name("seeker")
        .tool(look())
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_extension(User("ada"))
        .with_extension(ConversationId::new("chat 7"));
    agent.run(request).await.unwrap();

    let run = latest(&service(&console)).await;
    let summary = &run["run"];
    assert_eq!(summary["agent"], "seeker");
    assert_eq!(summary["status"], "completed");
    assert_eq!(summary["model_calls"], 2);
    assert_eq!(summary["tool_calls"], 1);
    assert_eq!(summary["usage"]["input_tokens"], 30);
    assert_eq!(summary["user"], "ada");
    assert_eq!(summary["conversation"], "chat 7");
    assert_eq!(summary["left_out"], 0);

    let models = of_kind(&run, "model");
    assert_eq!(models.len(), 2);
    assert_eq!(
        (&models[0]["turn"], &models[1]["turn"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(models[0]["attempts"][0]["end"], "answered");
    assert_eq!(models[0]["attempts"][0]["usage"]["output_tokens"], 3);
    assert_eq!(models[0]["is_given"], false);
    let tools = of_kind(&run, "tool");
    assert_eq!(tools[0]["name"], "look");
    assert_eq!(tools[0]["turn"], 0);
    assert!(tools[0]["end"].as_u64() >= tools[0]["at"].as_u64());
    assert_eq!(of_kind(&run, "agent")[0]["path"], "seeker");
}

#[tokio::test]
async fn a_streamed_run_looks_like_one_that_is_not() {
    let console = Console::new();
    let agent = || {
        Agent::builder(asks_and_answers())
            .tool(look())
            .global_callbacks(console.watch())
            .build()
            .unwrap()
    };
    agent().run("?").await.unwrap();
    let plain = latest(&service(&console)).await;
    agent().stream("?").response().await.unwrap();
    let streamed = latest(&service(&console)).await;

    let kinds = |run: &Value| -> Vec<Value> {
        let entries = run["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["kind"].clone()).collect()
    };
    assert_eq!(kinds(&plain), kinds(&streamed));
    assert_eq!(of_kind(&plain, "model")[0]["is_streamed"], false);
    assert_eq!(of_kind(&streamed, "model")[0]["is_streamed"], true);
}

#[tokio::test]
async fn an_agent_as_a_tool_is_inside_its_call() {
    let console = Console::new();
    let inner = Agent::builder(ScriptedModel::always(Turn::from_text("Oslo")))
        .name("inner")
        .build()
        .unwrap();
    let calls_twice = Turn::tool("inner", json!({ "request": "?" }))
        .and_tool("inner", json!({ "request": "again?" }));
    let model = ScriptedModel::new([calls_twice, Turn::from_text("Oslo.")]);
    let outer = Agent::builder(model)
        .name("outer")
        .tool(inner.into_tool("Knows."))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    outer.run("?").await.unwrap();

    let run = latest(&service(&console)).await;
    assert_eq!(run["run"]["agent"], "outer");
    assert_eq!(run["run"]["model_calls"], 4);
    let agents = of_kind(&run, "agent");
    let calls = of_kind(&run, "tool");
    assert_eq!(agents.len(), 3);
    for (agent, call) in agents[1..].iter().zip(&calls) {
        assert_eq!(agent["caller"], agents[0]["n"]);
        assert_eq!(agent["call"], call["call"], "each in the call of its own");
        let models = of_kind(&run, "model");
        let own = models.iter().filter(|model| model["agent"] == agent["n"]);
        assert_eq!(own.count(), 1);
    }
}

#[tokio::test]
async fn a_call_that_a_callback_answers_was_not_made() {
    let console = Console::new();
    let forbid = || before_tool(|_| Action::Respond(ToolResponse::error("no"))).named("forbid");
    for bundle in [
        Bundle::new().on_tool(forbid()),
        Bundle::new().outermost_tool(forbid()),
    ] {
        let agent = Agent::builder(asks_and_answers())
            .tool(look())
            .global_callbacks(console.watch())
            .global_callbacks(bundle)
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        let run = latest(&service(&console)).await;
        let tools = of_kind(&run, "tool");
        assert_eq!(tools.len(), 1);
        assert_eq!(tools[0]["is_given"], true);
        assert_eq!(tools[0]["is_error"], true);
        assert_eq!(tools[0]["attempts"], json!([]));
        let decisions = of_kind(&run, "decision");
        let decision = decisions.iter().find(|one| one["decision"] == "respond");
        assert_eq!(decision.unwrap()["callback"], "forbid");
        assert_eq!(decision.unwrap()["call"], tools[0]["call"]);
        assert_eq!(run["run"]["decided_by"], json!(["forbid"]));
    }
}

#[tokio::test]
async fn a_decision_has_the_reasons_that_were_given() {
    let console = Console::new();
    let clerk = before_tool(|request| {
        request.context().because("more than a clerk may look at");
        Action::Respond(ToolResponse::error("no"))
    });
    let agent = Agent::builder(asks_and_answers())
        .tool(look())
        .on_tool(clerk.named("clerk"))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let run = latest(&service(&console)).await;
    for kind in ["decision", "wrapper"] {
        let told = of_kind(&run, kind)[0];
        assert_eq!(told["reasons"], json!(["more than a clerk may look at"]));
    }
    assert_eq!(deeds(&run)[0].1, "answered without the call");
}

#[tokio::test]
async fn a_retry_is_an_attempt_of_its_call() {
    let console = Console::new();
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([Turn::error(busy), Turn::from_text("hi")]);
    let agent = Agent::builder(model)
        .on_model(on_model_error(|_, _| Recovery::Retry).named("again"))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();

    let run = latest(&service(&console)).await;
    let models = of_kind(&run, "model");
    assert_eq!(models.len(), 1);
    let ends: Vec<_> = models[0]["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["end"])
        .collect();
    assert_eq!(ends, ["overloaded", "answered"]);
    assert_eq!(run["run"]["failed_attempts"], 1);
    assert_eq!(run["run"]["decided_by"], json!(["again"]));
}

#[tokio::test]
async fn endings_are_told_apart() {
    let console = Console::new();
    let service = service(&console);
    let agent = |turn| {
        Agent::builder(ScriptedModel::new([turn]))
            .tool(Tool::function("ask", "Asks.", |_: Value| {
                let question = Interrupt::new("may I", "confirmation").for_role("support");
                Err::<String, _>(Error::interrupt(question))
            }))
            .global_callbacks(console.watch())
            .build()
            .unwrap()
    };
    let failed = agent(Turn::error(Error::new(ErrorKind::Provider, "down")));
    failed.run("?").await.unwrap_err();
    assert_eq!(runs(&service).await[0]["status"], "failed");
    assert_eq!(runs(&service).await[0]["error"], "provider");

    agent(Turn::tool("ask", json!({}))).run("?").await.unwrap();
    assert_eq!(runs(&service).await[0]["status"], "waiting");
    assert_eq!(runs(&service).await[0]["waits_for"], json!(["support"]));

    let hanging = agent(Turn::pending());
    let run = tokio::time::timeout(Duration::ZERO, hanging.run("?"));
    run.await.unwrap_err();
    let run = latest(&service).await;
    assert_eq!(run["run"]["status"], "cancelled");
    assert_eq!(of_kind(&run, "model")[0]["error"], "cancelled");
    assert_eq!(of_kind(&run, "model")[0]["attempts"][0]["end"], "cut");
}

#[tokio::test]
async fn a_run_that_is_made_again_is_another_one() {
    let console = Console::new();
    let service = service(&console);
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    for _ in 0..2 {
        let request = AgentRequest::new("?").with_run_id("night job");
        agent.run(request).await.unwrap();
    }
    let runs = runs(&service).await;
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run["model_calls"], 1);
    }
    assert_eq!(runs[1]["id"], "night job");
    let first = json(&service, "/api/runs/night%20job").await;
    assert_eq!(first["run"]["number"], runs[1]["number"]);
}

#[tokio::test]
async fn the_list_has_filters_and_a_cursor() {
    let console = Console::new();
    let service = service(&console);
    let agent = |name: &str, turn| {
        Agent::builder(ScriptedModel::always(turn))
            .name(name)
            .global_callbacks(console.watch())
            .build()
            .unwrap()
    };
    let good = agent("good", Turn::from_text("hi"));
    let bad = agent("bad", Turn::error(Error::new(ErrorKind::Provider, "down")));
    for _ in 0..3 {
        good.run("?").await.unwrap();
        bad.run("?").await.unwrap_err();
    }
    let page = json(&service, "/api/runs?limit=4").await;
    assert_eq!(page["runs"].as_array().unwrap().len(), 4);
    assert_eq!(page["runs"][0]["agent"], "bad", "the latest first");
    let next = page["next"].as_str().unwrap();
    let rest = json(&service, &format!("/api/runs?limit=4&before={next}")).await;
    assert_eq!(rest["runs"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next"], Value::Null);

    let failed = json(&service, "/api/runs?status=failed").await;
    assert_eq!(failed["runs"].as_array().unwrap().len(), 3);
    let none = json(&service, "/api/runs?status=failed&agent=good").await;
    assert_eq!(none["runs"], json!([]));
}

#[tokio::test]
async fn an_agent_is_explained_without_a_run() {
    let console = Console::new();
    let service = service(&console);
    let agent = |callback: &str| {
        let named = |name: &str| before_tool(|_| ()).named(name.to_owned());
        Agent::builder(ScriptedModel::new([]))
            .tool(look())
            .on_tool(named(callback))
            .on_tool(named("Approval"))
            .build()
            .unwrap()
    };
    console.agent(&agent("first"));
    let agents = json(&service, "/api/agents").await;
    assert_eq!(agents[0]["warnings"], json!([]));

    // Known by their names, as in everything that is explained.
    console.agent(&agent("CallRetryLayer"));
    let agents = json(&service, "/api/agents").await;
    assert_eq!(agents.as_array().unwrap().len(), 1, "by its name");
    assert_eq!(
        agents[0]["body"]["loop"]["around_tools"][0]["callbacks"],
        json!(["CallRetryLayer", "Approval"])
    );
    let warning = agents[0]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("each attempt asks again"), "{warning}");
}

#[tokio::test]
async fn the_cost_is_what_providers_have_stated() {
    let console = Console::new();
    let answer = |cost| {
        let mut metadata = Metadata::default();
        metadata.cost = cost;
        ModelResponse::from_tool_calls([ToolCall::new("call", "look", json!({}))])
            .with_metadata(metadata)
    };
    let model = ScriptedModel::new([
        Turn::response(answer(Some(0.25))),
        Turn::response(answer(None)),
        Turn::response(answer(Some(0.5))),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tool(look())
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let run = latest(&service(&console)).await;
    assert_eq!(run["run"]["cost"], 0.75);
    assert_eq!(of_kind(&run, "model")[0]["attempts"][0]["cost"], 0.25);
}

/// What a layer did: its words, and the fields.
fn deeds(run: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let deeds = of_kind(run, "wrapper");
    deeds
        .iter()
        .map(|deed| (text(&deed["names"][0]), text(&deed["did"])))
        .collect()
}

#[tokio::test]
async fn what_a_layer_or_a_band_did_to_a_call_is_told() {
    let console = Console::new();
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([Turn::error(busy), Turn::from_text("hi")]);
    let brief = before_model(|request| request.add_instructions("Be brief."));
    let agent = Agent::builder(model)
        .on_model(brief.named("brief"))
        .model_layer(CallRetryLayer::new().backoff(Duration::ZERO, Duration::ZERO))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    console.agent(&agent);
    agent.run("?").await.unwrap();

    let service = service(&console);
    let run = latest(&service).await;
    let text = |text: &str| text.to_owned();
    assert_eq!(
        deeds(&run),
        [
            (text("[CallRetryLayer]"), text("made 2 calls")),
            (text("brief"), text("changed the request's instructions")),
        ]
    );
    let brief = of_kind(&run, "wrapper")[1];
    assert_eq!(
        brief["request"][0],
        json!({ "field": "instructions", "before": null, "after": 9 })
    );
    // In the explanation it has the place that it tells.
    let agents = json(&service, "/api/agents").await;
    let around = &agents[0]["body"]["loop"]["model"]["around"];
    let index = usize::try_from(brief["index"].as_u64().unwrap()).unwrap();
    assert_eq!(around[index]["callbacks"], json!(["brief"]));
    assert_eq!(of_kind(&run, "decision")[0]["wrapper"], brief["index"]);
}

#[tokio::test]
async fn a_layer_that_answers_has_decided() {
    let console = Console::new();
    let late = TimeoutLayer::new(Duration::ZERO);
    let agent = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .model_layer(late)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let run = latest(&service(&console)).await;
    assert_eq!(run["run"]["decided_by"], json!(["TimeoutLayer"]));
    assert_eq!(
        deeds(&run)[0].1,
        "dropped the call inside, failed: timed out"
    );
}

#[tokio::test]
async fn a_call_that_is_watched_twice_is_one() {
    let console = Console::new();
    let inner = Agent::builder(ScriptedModel::always(Turn::from_text("Oslo")))
        .name("inner")
        .callbacks(console.watch())
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("inner", json!({ "request": "?" })),
        Turn::from_text("Oslo."),
    ]);
    let outer = Agent::builder(model)
        .name("outer")
        .tool(inner.into_tool("Knows."))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    outer.run("?").await.unwrap();
    let run = latest(&service(&console)).await;
    assert_eq!(of_kind(&run, "model").len(), 3);
    assert_eq!(of_kind(&run, "tool").len(), 1);
    assert_eq!(of_kind(&run, "agent").len(), 2);
}

#[tokio::test]
async fn two_consoles_see_the_same() {
    let [one, other] = [Console::new(), Console::new()];
    let agent = Agent::builder(asks_and_answers())
        .tool(look())
        .global_callbacks(one.watch())
        .global_callbacks(other.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    for console in [one, other] {
        let run = latest(&service(&console)).await;
        assert_eq!(of_kind(&run, "model").len(), 2);
        assert_eq!(of_kind(&run, "model")[0]["attempts"][0]["end"], "answered");
        assert_eq!(of_kind(&run, "tool").len(), 1);
    }
}

#[tokio::test]
async fn a_long_run_comes_in_pages_that_are_bounded() {
    let console = Console::new();
    let agent = Agent::builder(ScriptedModel::always(Turn::tool("look", json!({}))))
        .tool(look())
        .max_iterations(700)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_run_id("long");
    agent.run(request).await.unwrap_err();

    let service = service(&console);
    let first = json(&service, "/api/runs/long?limit=7").await;
    assert_eq!(first["entries"].as_array().unwrap().len(), 7);
    assert_eq!(first["next"], 7);
    let mut pages = 0;
    let mut all = Vec::new();
    let mut next = json!(0);
    while !next.is_null() {
        let (_, text) = get(&service, &format!("/api/runs/long?from={next}")).await;
        assert!(text.len() < 600_000, "{} bytes", text.len());
        let page: Value = serde_json::from_str(&text).unwrap();
        all.extend(page["entries"].as_array().unwrap().clone());
        next = page["next"].clone();
        pages += 1;
    }
    assert!(pages > 1);
    assert_eq!(json!(all.len()), first["run"]["entries"]);
    let numbers = all.iter().map(|entry| entry["n"].as_u64().unwrap());
    assert!(numbers.eq(0..all.len() as u64));
}
