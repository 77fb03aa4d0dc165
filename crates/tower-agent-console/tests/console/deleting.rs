//! A person's data: what is kept of it, and that it goes.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::{Agent, AgentRequest, Tool};
use tower_agent_console::{Console, Operator};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{User, get, json, post, runs, send, service, service_for, user_of};

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
    let exported = console.export_user("ada").await.unwrap();
    assert_eq!(exported.len(), 2);
    assert_eq!(exported[0]["run"]["user"], "ada");
    assert!(exported[0].to_string().contains("a secret"));

    let service = service(&console);
    let id = exported[0]["run"]["id"].as_str().unwrap();
    assert_eq!(console.delete_user("ada").await.unwrap(), 2);
    assert_eq!(console.delete_user("ada").await.unwrap(), 0);
    assert_eq!(console.export_user("ada").await.unwrap().len(), 0);
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
            move |_: serde_json::Value| {
                let removing = removing.clone();
                async move { removing.delete_run("r1").await.unwrap().to_string() }
            },
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
    assert!(!Console::new().delete_run("r1").await.unwrap());
}

/// What is answered to a request that an operator sends to a path.
async fn users(console: &Console) -> Vec<Value> {
    let runs = runs(&service(console)).await;
    runs.into_iter().map(|run| run["user"].clone()).collect()
}

#[tokio::test]
async fn an_operator_exports_and_deletes_what_they_may() {
    let console = Console::new().record_content().user_id(user_of);
    let agent = agent(&console);
    for user in ["ada", "bob", "ada", "eve", "eve"] {
        run(&agent, user).await;
    }
    let manager = service_for(&console, || Operator::new("max").manages_data());
    let ids: Vec<_> = runs(&manager).await;
    let id = |index: usize| ids[index]["id"].clone();

    // By run, and without what the operator does not see.
    let (status, exported) = post(&manager, "/api/export", json!({ "run": id(0) })).await;
    assert_eq!(status, 200);
    let shown = exported.to_string();
    assert!(
        !shown.contains("a secret") && !shown.contains("eve"),
        "{shown}"
    );
    assert_eq!(exported["runs"][0]["run"]["id"], id(0));
    assert_eq!(
        post(&manager, "/api/delete", json!({ "run": id(0) }))
            .await
            .0,
        200
    );
    assert_eq!(
        post(&manager, "/api/delete", json!({ "run": id(0) }))
            .await
            .0,
        404
    );
    assert_eq!(users(&console).await, ["eve", "ada", "bob", "ada"]);

    // By user, whom the operator need not know.
    let (status, deleted) = post(&manager, "/api/delete", json!({ "userOf": id(2) })).await;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(2)));
    assert_eq!(users(&console).await, ["eve", "bob"]);
    assert_eq!(
        post(&manager, "/api/delete", json!({ "user": "bob" }))
            .await
            .0,
        403
    );
    let knowing = service_for(&console, || {
        Operator::new("kim")
            .manages_data()
            .sees_users()
            .sees_content()
    });
    let (_, exported) = post(&knowing, "/api/export", json!({ "user": "bob" })).await;
    let shown = exported.to_string();
    assert!(
        shown.contains("a secret") && shown.contains("bob"),
        "{shown}"
    );
    assert_eq!(
        post(&knowing, "/api/delete", json!({ "user": "bob" }))
            .await
            .0,
        200
    );
    assert_eq!(users(&console).await, ["eve"]);

    // Each is in the audit, without the user's name.
    let audit = json(&manager, "/api/audit").await;
    let audit = audit["rows"].as_array().unwrap();
    let rows: Vec<_> = audit.iter().rev().collect();
    let told = |row: &&Value| (row["action"].clone(), row["status"].clone());
    assert_eq!(
        rows.iter().map(told).collect::<Vec<_>>(),
        [
            (json!("export"), json!(200)),
            (json!("delete"), json!(200)),
            (json!("delete"), json!(404)),
            (json!("delete"), json!(200)),
            (json!("delete"), json!(403)),
            (json!("export"), json!(200)),
            (json!("delete"), json!(200)),
        ]
    );
    assert_eq!(rows[0]["about"], format!("run {}", id(0).as_str().unwrap()));
    assert!(rows[3]["about"].as_str().unwrap().starts_with("runs of #"));
    assert!(!json!(audit).to_string().contains("bob"));
}

#[tokio::test]
async fn nobody_else_exports_or_deletes() {
    let console = Console::new().user_id(user_of);
    run(&agent(&console), "ada").await;
    let reader = service_for(&console, || {
        Operator::new("rea").sees_content().sees_users()
    });
    let id = runs(&reader).await[0]["id"].clone();
    let manager = service_for(&console, || Operator::new("max").manages_data());
    for path in ["/api/export", "/api/delete"] {
        assert_eq!(post(&reader, path, json!({ "run": id })).await.0, 403);
        assert_eq!(get(&manager, path).await.0, 404, "a link does nothing");
        for body in [
            json!({}),
            json!({ "run": id, "user": "ada" }),
            json!({ "run": null }),
            json!("run"),
        ] {
            assert_eq!(post(&manager, path, body).await.0, 400);
        }
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let request = Request::post(path)
                .header("host", "console.example")
                .header(name, value);
            let request = request.body(json!({ "run": id }).to_string()).unwrap();
            assert_eq!(send(&manager, request).await.status(), 403, "{name}");
        }
    }
    assert_eq!(runs(&reader).await.len(), 1);
}

/// A form of another page sends no JSON, and a client may never send the rest.
#[tokio::test(start_paused = true)]
async fn a_request_is_json_of_some_length_that_arrives() {
    let console = Console::new();
    let manager = service_for(&console, || Operator::new("mia").manages_data());
    let long = json!({ "run": "x".repeat(20_000) }).to_string();
    for (content_type, body, status) in [
        ("text/plain", "{\"run\":\"r\"}".to_owned(), 415),
        ("application/json", long, 413),
        ("application/json; charset=utf-8", "{".to_owned(), 400),
    ] {
        let request = Request::post("/api/delete").header("content-type", content_type);
        let response = send(&manager, request.body(body).unwrap()).await;
        assert_eq!(response.status(), status, "{content_type}");
    }
    let never = stream::pending::<Result<Frame<Bytes>, Infallible>>();
    let request = Request::post("/api/delete").header("content-type", "application/json");
    let request = request.body(StreamBody::new(never)).unwrap();
    let response = manager.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 408);
}
