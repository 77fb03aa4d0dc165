//! The list of a server's tools.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use rmcp::model::ToolAnnotations;
use serde_json::{Value, json};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Agent, Effect};
use tower_agent_mcp::client::Lifecycle;
use tower_agent_test::{ScriptedModel, Turn};

use crate::http::Http;
use crate::support::{
    LIFECYCLES, Server, agent_with_tools_of, ask, connected, first_result, names, said, scripted,
    tool,
};
use crate::told::{result, sent, text, told};
use crate::tracing_log::TracingLog;

#[tokio::test]
async fn tools_are_sorted_prefixed_and_filtered() {
    let tools = [tool("walk"), tool("admin"), tool("eat.fast"), tool("drink")];
    let client = Server::echo()
        .with_tools(tools)
        .client()
        .prefix("cat_")
        .filter(|tool| tool.name() != "admin")
        .connect()
        .await
        .unwrap();
    assert_eq!(
        names(&client).await,
        ["cat_drink", "cat_eat_fast", "cat_walk"]
    );
    assert!(ask(&client, "cat_walk", json!({})).await.is_ok());
    assert!(ask(&client, "cat_admin", json!({})).await.is_err());
}

#[tokio::test]
async fn the_server_hears_its_own_name_of_a_tool() {
    let server = Server::new(async |params, _| Ok(said(&params.name)));
    let client = server
        .with_tools([tool("eat.fast")])
        .client()
        .prefix("cat_")
        .connect()
        .await
        .unwrap();
    let response = ask(&client, "cat_eat_fast", json!({})).await.unwrap();
    assert_eq!(response.value(), "eat.fast");
}

#[tokio::test]
async fn parameters_are_the_servers_schema_and_trusted_annotations_are_effects() {
    let hints = |read_only, idempotent| {
        let mut hints = ToolAnnotations::new();
        (hints.read_only_hint, hints.idempotent_hint) = (read_only, idempotent);
        hints
    };
    let tools = [
        tool("a").with_annotations(hints(Some(true), None)),
        tool("b").with_annotations(hints(Some(false), Some(true))),
        tool("c").with_annotations(hints(None, None)),
        tool("d"),
    ];
    let server = Server::echo().with_tools(tools.clone());
    let client = server
        .client()
        .effect(ToolDeclaration::effect)
        .connect()
        .await
        .unwrap();
    let listed = client.tools().await;
    let effects: Vec<_> = listed
        .iter()
        .map(|tool| tool.declaration().effect())
        .collect();
    assert_eq!(
        effects,
        [
            Effect::Pure,
            Effect::Idempotent,
            Effect::Mutating,
            Effect::Mutating
        ]
    );
    let schema = json!(tools[0].input_schema);
    assert_eq!(listed[0].declaration().parameters(), &schema);
    assert_eq!(listed[0].declaration().description(), "Does a.");

    let distrusted = server.client().connect().await.unwrap();
    let tools = distrusted.tools().await;
    assert!(
        tools
            .iter()
            .all(|tool| tool.declaration().effect() == Effect::Mutating)
    );
}

#[tokio::test]
async fn a_tool_that_no_agent_can_offer_is_left_out() {
    let mut scalar = tool("scalar");
    scalar.input_schema = Arc::new(serde_json::from_value(json!({ "type": "string" })).unwrap());
    let mut untyped = tool("untyped");
    untyped.input_schema = Arc::default();
    let long: &str = Box::leak("x".repeat(65).into_boxed_str());
    let tools = [scalar, untyped, tool(long), tool("a.b"), tool("a/b")];
    let client = Server::echo()
        .with_tools(tools)
        .client()
        .connect()
        .await
        .unwrap();
    assert_eq!(names(&client).await, ["a_b", "untyped"]);
    let model = ScriptedModel::always(Turn::from_text("Yes."));
    assert!(
        Agent::builder(model)
            .tools(client.tools().await)
            .build()
            .is_ok()
    );
}

/// Adds a tool, and tells the client about it before its call is answered.
fn growing(lifecycle: Lifecycle) -> Server {
    let added: Arc<Mutex<Option<Arc<crate::support::World>>>> = Arc::default();
    let world = added.clone();
    let server = Server::new(move |_, context| {
        let world = world.lock().unwrap().clone().unwrap();
        async move {
            world.tools.lock().unwrap().push(tool("added"));
            match lifecycle {
                Lifecycle::Initialize => context.peer.notify_tool_list_changed().await.unwrap(),
                _ => world.changed.notify_one(),
            }
            Ok(said("added"))
        }
    });
    *added.lock().unwrap() = Some(server.world.clone());
    server
}

#[tokio::test]
async fn a_change_that_the_server_reports_is_seen_at_the_next_look() {
    let server = growing(Lifecycle::Initialize);
    let client = server.connect(Lifecycle::Initialize).await;
    assert_eq!(names(&client).await, ["echo"]);
    assert_eq!(server.world.lists.load(Ordering::SeqCst), 1);
    ask(&client, "echo", json!({})).await.unwrap();
    assert_eq!(names(&client).await, ["added", "echo"]);
    assert_eq!(names(&client).await, ["added", "echo"]);
    assert_eq!(server.world.lists.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_change_reported_to_a_listener_is_seen() {
    let server = growing(Lifecycle::Discover);
    let client = server.connect(Lifecycle::Discover).await;
    ask(&client, "echo", json!({})).await.unwrap();
    // The report comes on a stream of its own.
    while names(&client).await != ["added", "echo"] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_its_reports_is_asked_for_them_again() {
    let server = Server::echo();
    let client = server.connect(Lifecycle::Discover).await;
    server.world.silenced.notify_one();
    // Nobody is told of this one.
    server.world.tools.lock().unwrap().push(tool("added"));
    while names(&client).await != ["added", "echo"] {
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    server.world.tools.lock().unwrap().push(tool("again"));
    server.world.changed.notify_one();
    while names(&client).await != ["added", "again", "echo"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.world.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_ends_its_reports_is_asked_less_and_less() {
    let server = Server::echo();
    server.world.is_silent.store(true, Ordering::SeqCst);
    let _client = server.connect(Lifecycle::Discover).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let subscriptions = server.world.subscriptions.lock().unwrap();
    assert!(
        (8..30).contains(&subscriptions.len()),
        "{}",
        subscriptions.len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_again_when_its_time_is_over() {
    let server = Server::echo();
    *server.world.ttl.lock().unwrap() = Some(1000);
    let client = server.connect(Lifecycle::Discover).await;
    server.world.tools.lock().unwrap().push(tool("added"));
    assert_eq!(names(&client).await, ["echo"]);
    tokio::time::advance(std::time::Duration::from_millis(1001)).await;
    assert_eq!(names(&client).await, ["added", "echo"]);
}

#[tokio::test]
async fn a_failed_refresh_keeps_the_old_list() {
    let server = growing(Lifecycle::Initialize);
    let client = server.connect(Lifecycle::Initialize).await;
    ask(&client, "echo", json!({})).await.unwrap();
    server.world.refuses_lists.store(true, Ordering::SeqCst);
    assert_eq!(names(&client).await, ["echo"]);
    server.world.refuses_lists.store(false, Ordering::SeqCst);
    assert_eq!(names(&client).await, ["added", "echo"]);
}

#[tokio::test]
async fn a_run_keeps_the_tools_that_it_began_with() {
    let server = growing(Lifecycle::Initialize);
    let client = server.connect(Lifecycle::Initialize).await;
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let counted = seen.clone();
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({})),
        Turn::from_text("One."),
        Turn::from_text("Two."),
    ]);
    let agent = Agent::builder(model)
        .on_agent(client)
        .on_model(tower_agent::callback::before_model(move |request| {
            counted.lock().unwrap().push(request.tools().len());
        }))
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    agent.run("Again.").await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 1, 2]);
}

#[tokio::test]
async fn a_call_of_a_tool_that_is_gone_is_an_error_for_the_model() {
    let server = Server::new(async |params, _| {
        Err(rmcp::ErrorData::invalid_params(
            format!("unknown tool {}", params.name),
            None,
        ))
    });
    let client = server.client().connect().await.unwrap();
    let model = ScriptedModel::new([Turn::tool("echo", json!({})), Turn::from_text("Sorry.")]);
    let agent = agent_with_tools_of(&client, model).await;
    let response = agent.run("Go.").await.unwrap();
    assert_eq!(response.text(), "Sorry.");
    let result = first_result(&response);
    assert!(result.is_error && result.text().contains("unknown tool echo"));
}

#[tokio::test]
async fn a_tool_that_runs_only_as_a_task_is_left_out() {
    let listed = |support: &str| {
        json!({
            "name": support, "inputSchema": { "type": "object" },
            "execution": { "taskSupport": support }, "_meta": { "own": 1 },
        })
    };
    let tools = ["required", "optional", "forbidden"].map(listed);
    let list = json!({ "tools": tools });
    let over_stream = list.clone();
    let client = scripted(move |message| match message["method"].as_str() {
        Some("tools/list") => {
            vec![json!({ "jsonrpc": "2.0", "id": message["id"], "result": over_stream })]
        }
        _ => Vec::new(),
    });
    assert_eq!(
        names(&connected(client).await).await,
        ["forbidden", "optional"]
    );

    // Over HTTP as JSON and as an event.
    for as_event in [false, true] {
        let list = list.clone();
        let answer = move |axum::Json(message): axum::Json<Value>| async move {
            let result = match message["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "listing", "version": "1" },
                }),
                Some("tools/list") => list,
                _ => return (axum::http::StatusCode::ACCEPTED, "").into_response(),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            if as_event {
                let body = format!("data: {answer}\n\n");
                ([("content-type", "text/event-stream")], body).into_response()
            } else {
                axum::Json(answer).into_response()
            }
        };
        let app = axum::Router::new().route("/mcp", axum::routing::post(answer));
        let http = Http::serve(app).await;
        let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
        assert_eq!(names(&client).await, ["forbidden", "optional"]);
    }
}

/// Pages of a list, each with its items and the cursor of the next, by the cursor that leads to it.
type Pages = fn(&str) -> (Value, Value);

#[tokio::test]
async fn a_list_whose_cursor_leads_back_ends_with_what_there_is() {
    let pages: [(&str, Pages, &[&str]); 6] = [
        ("always empty", |_| (json!(["a"]), json!("")), &["a"]),
        ("always the same", |_| (json!(["a"]), json!("x")), &["a"]),
        (
            "a second page that stays",
            |at| match at {
                "none" => (json!(["a"]), json!("x")),
                _ => (json!(["b"]), json!("x")),
            },
            &["a", "b"],
        ),
        (
            "a circle",
            |at| match at {
                "x" => (json!(["b"]), json!("y")),
                "y" => (json!(["c"]), json!("x")),
                _ => (json!(["a"]), json!("x")),
            },
            &["a", "b", "c"],
        ),
        (
            "an empty one that leads on",
            |at| match at {
                "none" => (json!(["a"]), json!("")),
                "" => (json!(["b"]), json!("x")),
                _ => (json!(["c"]), Value::Null),
            },
            &["a", "b", "c"],
        ),
        (
            "an empty one that leads on and stays",
            |at| match at {
                "none" => (json!(["a"]), json!("")),
                _ => (json!(["b"]), json!("")),
            },
            &["a", "b"],
        ),
    ];
    for (of, page, expected) in pages {
        let (log, _guard) = TracingLog::begin();
        let (http, _) = told(move |seen| {
            let (field, item): (_, fn(&Value) -> Value) = match seen.method.as_str() {
                "initialize" => {
                    let capabilities = json!({ "tools": {}, "resources": {} });
                    let initialized = json!({
                        "protocolVersion": "2025-06-18", "capabilities": capabilities,
                        "serverInfo": { "name": "pages", "version": "1" },
                    });
                    return Some(result(seen, initialized));
                }
                "tools/list" => (
                    "tools",
                    |name| json!({ "name": name, "inputSchema": { "type": "object" } }),
                ),
                "resources/list" => ("resources", |name| json!({ "uri": name, "name": name })),
                _ => return None,
            };
            let (names, next) = page(seen.params["cursor"].as_str().unwrap_or("none"));
            let items: Vec<_> = names.as_array().unwrap().iter().map(item).collect();
            Some(result(seen, json!({ field: items, "nextCursor": next })))
        })
        .await;
        let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
        assert_eq!(names(&client).await, expected, "{of}");
        let resources = client.resources().await.unwrap();
        let uris: Vec<_> = resources.iter().map(|resource| &*resource.uri).collect();
        assert_eq!(uris, expected, "{of}");
        let lines = log.lines();
        let told = lines.iter().filter(|line| line.text.contains("leads back"));
        let ends_well = of == "an empty one that leads on";
        assert_eq!(told.count(), if ends_well { 0 } else { 2 }, "{of}");
        let left_out = lines.iter().any(|line| line.text.contains("left out"));
        assert!(!left_out, "{of}");
    }
}

#[tokio::test]
async fn a_list_that_nothing_has_changed_is_read_once() {
    for lifecycle in LIFECYCLES {
        for ttl in [0, 3_600_000] {
            let server = Server::echo();
            *server.world.ttl.lock().unwrap() = Some(ttl);
            let client = server.connect(lifecycle).await;
            let model = ScriptedModel::always(Turn::from_text("Done."));
            let agent = Agent::builder(model).on_agent(client).build().unwrap();
            for _ in 0..5 {
                agent.run("Go.").await.unwrap();
            }
            assert_eq!(
                server.world.lists.load(Ordering::SeqCst),
                1,
                "{lifecycle:?} {ttl}"
            );
        }
    }
}

#[tokio::test]
async fn runs_that_begin_at_once_share_one_list() {
    let (http, log) = told(|seen| {
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        let answer = json!({ "jsonrpc": "2.0", "id": seen.id, "result": text("fine") });
        let is_call = seen.method == "tools/call";
        is_call.then(|| sent(StatusCode::OK, false, &json!([changed, answer])))
    })
    .await;
    let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
    ask(&client, "echo", json!({})).await.unwrap();
    let looks = (0..20).map(|_| names(&client));
    for listed in futures::future::join_all(looks).await {
        assert_eq!(listed, ["echo"]);
    }
    assert_eq!(log.count("tools/list"), 2);
}

#[tokio::test]
async fn runs_that_begin_at_once_share_a_list_that_cannot_be_read() {
    let fails = Arc::new(AtomicBool::new(false));
    let failed = fails.clone();
    let (http, log) = told(move |seen| {
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        let answer = json!({ "jsonrpc": "2.0", "id": seen.id, "result": text("fine") });
        match seen.method.as_str() {
            "tools/list" if failed.load(Ordering::SeqCst) => {
                Some(StatusCode::BAD_GATEWAY.into_response())
            }
            "tools/call" => Some(sent(StatusCode::OK, false, &json!([changed, answer]))),
            _ => None,
        }
    })
    .await;
    let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
    ask(&client, "echo", json!({})).await.unwrap();
    fails.store(true, Ordering::SeqCst);
    let looks = (0..20).map(|_| names(&client));
    for listed in futures::future::join_all(looks).await {
        assert_eq!(listed, ["echo"]);
    }
    assert_eq!(log.count("tools/list"), 2);
    // The next one tries again.
    fails.store(false, Ordering::SeqCst);
    names(&client).await;
    names(&client).await;
    assert_eq!(log.count("tools/list"), 3);
}
