//! Durable runs as a console lists them, and goes on with those that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, AgentRequest, Effect, Error, Tool};
use tower_agent_console::{Console, DurableKey, DurableRuns, Operator};
use tower_agent_conversations::{ConversationKey, SessionLayer};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{Durable, Journal, RunKey, RunStatus, Runs};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::aged::Aged;
use crate::support::server::Server;

/// Pays, and counts how often.
fn clerk(model: &ScriptedModel, journal: Durable<Sqlite>, paid: &Arc<AtomicU32>) -> Agent {
    let paid = paid.clone();
    let pay = Tool::function("pay", "Pays.", move |_: Value| {
        paid.fetch_add(1, Ordering::SeqCst);
        "paid"
    });
    Agent::builder(model.clone())
        .name("clerk")
        .tool(pay.effect(Effect::Mutating))
        .global_callbacks(journal)
        .build()
        .unwrap()
}

fn paying_and_hanging() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()])
}

/// A console of somebody on duty.
async fn ask(console: &Console, request: http::request::Builder, body: &str) -> (u16, Value) {
    let request = request
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let console = console.clone();
    let service = console.into_service(|_| Some(Operator::new("sam").resumes_runs()));
    let response = service.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn list(console: &Console, query: &str) -> Vec<Value> {
    let request = http::Request::get(format!("/api/durable?{query}"));
    let (status, page) = ask(console, request, "").await;
    assert_eq!(status, 200, "{page}");
    page["runs"].as_array().unwrap().clone()
}

fn statuses(runs: &[Value]) -> Vec<(&str, &str)> {
    runs.iter()
        .map(|run| (run["id"].as_str().unwrap(), run["status"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_lost_run_is_listed_and_goes_on_from_the_page_without_paying_twice() {
    let place = Aged::new("listed-lost").await;
    let journal = || Durable::new(place.database.clone()).version("7");
    let paid = Arc::default();
    let model = paying_and_hanging();
    let request = RunKey::new("r1").of("ada").request("Pay.");
    place
        .killed(clerk(&model, journal(), &paid), &model, request)
        .await;

    let console = Console::new().durable_runs(place.runs());
    let runs = list(&console, "").await;
    assert_eq!(statuses(&runs), [("r1", "lost")]);
    assert_eq!(runs[0]["version"], "7");
    assert_eq!(runs[0]["may_resume"], true);
    assert!(runs[0]["user"].as_str().unwrap().starts_with('#'));
    assert_eq!(list(&console, "status=running").await.len(), 0);
    assert_eq!(list(&console, "status=lost&agent=clerk").await.len(), 1);

    let body = json!({ "place": runs[0]["place"] }).to_string();
    let resume =
        || http::Request::post("/api/durable/resume").header("content-type", "application/json");
    let (status, answer) = ask(&console, resume(), &body).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (409, &json!("unknown_agent"))
    );
    let model = ScriptedModel::new([Turn::from_text("It is paid.")]);
    console.agent(&clerk(&model, journal(), &paid));
    assert_eq!(ask(&console, resume(), &body).await.0, 202);
    while place.status("r1").await != RunStatus::Completed {
        tokio::task::yield_now().await;
    }
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let runs = list(&console, "").await;
    assert_eq!(statuses(&runs), [("r1", "completed")]);
    assert_eq!(ask(&console, resume(), &body).await.0, 409);
}

#[tokio::test]
async fn a_run_of_a_session_and_one_that_a_process_works_on_are_not_gone_on_with() {
    let place = Aged::new("listed-session").await;
    let paid = Arc::default();
    let model = paying_and_hanging();
    let agent = clerk(&model, Durable::new(place.database.clone()), &paid);
    let session = SessionLayer::new(place.database.clone()).layer(agent.clone());
    let key = ConversationKey::new("shop", "ada", "c1");
    let request = key.request(AgentRequest::new("Pay.").with_run_id("r1"));
    place.killed(session, &model, request).await;

    let console = Console::new().durable_runs(place.runs());
    console.agent(&agent);
    let runs = list(&console, "").await;
    assert_eq!(runs[0]["conversation"], "c1");
    assert_eq!(
        (&runs[0]["status"], &runs[0]["may_resume"]),
        (&json!("lost"), &json!(false))
    );
    let body = json!({ "place": runs[0]["place"] }).to_string();
    let resume =
        http::Request::post("/api/durable/resume").header("content-type", "application/json");
    assert_eq!(ask(&console, resume, &body).await.0, 409);

    // Nor by whoever asks for it in code.
    let lost = place
        .runs()
        .list(&Default::default())
        .await
        .unwrap()
        .remove(0);
    let begun = lost
        .started_at
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let key = |begun, user: &str| DurableKey {
        begun,
        id: "r1".to_owned(),
        user: Some(user.to_owned()),
    };
    let begun = u64::try_from(begun.as_micros()).unwrap();
    let runs: &dyn DurableRuns = &place.runs();
    for key in [
        key(begun, "ada"),
        key(begun + 1_000, "ada"),
        key(begun, "bob"),
    ] {
        runs.resume(key, agent.clone()).await.unwrap_err();
    }
}

async fn every_status_is_listed<J: Journal>(runs: Runs, journal: Durable<J>) {
    let ends = |name: &str, turn: Turn, asks: bool| {
        let model = ScriptedModel::new([turn]);
        let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
        let mut agent = Agent::builder(model)
            .name(name.to_owned())
            .tool(pay)
            .global_callbacks(journal.clone());
        if asks {
            agent = agent.on_tool(Approval::of_tools(["pay"]).by_role("support"));
        }
        agent.build().unwrap()
    };
    let of = |id: &str| RunKey::new(id).of("ada").request("canary-question");
    let done = ends("one", Turn::from_text("canary-answer"), false);
    done.run(of("done")).await.unwrap();
    let failed = Turn::error(Error::abort("canary-error"));
    ends("two", failed, false)
        .run(of("failed"))
        .await
        .unwrap_err();
    for id in ["waits", "cancelled"] {
        let waits = ends("three", Turn::tool("pay", json!({})), true);
        waits.run(of(id)).await.unwrap();
    }
    let cancelled = RunKey::new("cancelled").of("ada");
    runs.cancel(cancelled).await.unwrap();

    let console = Console::new().durable_runs(runs.clone());
    let listed = list(&console, "").await;
    let text = json!(listed).to_string();
    assert!(!text.contains("canary") && !text.contains("ada"), "{text}");
    let mut seen = statuses(&listed);
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            ("cancelled", "cancelled"),
            ("done", "completed"),
            ("failed", "failed"),
            ("waits", "waiting")
        ]
    );
    let waiting = list(&console, "status=waiting").await;
    assert_eq!(statuses(&waiting), [("waits", "waiting")]);
    assert_eq!(waiting[0]["waits_for"], json!(["support"]));
    assert_eq!(
        list(&console, "status=failed&agent=two").await[0]["error"],
        "aborted"
    );

    // A page at a time, in the same order.
    let mut paged = Vec::new();
    let mut query = "limit=1".to_owned();
    loop {
        let request = http::Request::get(format!("/api/durable?{query}"));
        let (_, page) = ask(&console, request, "").await;
        paged.push(page["runs"][0]["id"].clone());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        let next = next.replace('#', "%23").replace(' ', "%20");
        query = format!("limit=1&before={next}");
    }
    let ids: Vec<_> = listed.iter().map(|run| run["id"].clone()).collect();
    assert_eq!(paged, ids);
}

#[tokio::test]
async fn sqlite_lists_every_status() {
    let database = Sqlite::in_memory().await.unwrap();
    let journal = Durable::new(database.clone());
    every_status_is_listed(database.runs(), journal).await;
}

#[tokio::test]
async fn postgres_lists_every_status() {
    let Some(server) = Server::start("listed") else {
        return;
    };
    let database = server.connect().await;
    let journal = Durable::new(database.clone());
    every_status_is_listed(database.runs(), journal).await;
}
