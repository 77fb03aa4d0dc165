//! Staff approve what an agent does for a customer: one path for customers, another for staff.
//!
//! ```text
//! cargo run --package tower-agent-agui --example staff
//! ```
//!
//! It needs no key and no network: the model is a script, and the requests are made in this
//! process.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::{Router, response::Response};
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::{Agent, BoxError, Tool};
use tower_agent_agui::conversations::{InboxService, Roles};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Deserialize, JsonSchema)]
struct Refund {
    order: String,
    cents: u32,
}

/// Creates the agent. Its refunds are approved by support, within a day.
fn agent() -> Result<Agent, BoxError> {
    let model = ScriptedModel::new([
        Turn::tool("refund", json!({ "order": "A7", "cents": 4990 })),
        Turn::from_text("You have 40 euros back."),
        Turn::from_text("You are welcome."),
    ]);
    let refund = Tool::function("refund", "Refunds an order.", |refund: Refund| {
        format!("{} cents were refunded for {}", refund.cents, refund.order)
    });
    let approval = Approval::of_tools(["refund"])
        .by_role("support")
        .allow_edits()
        .deny_after(DAY);
    let agent = Agent::builder(model).tool(refund).on_tool(approval);
    Ok(agent.build()?)
}

/// Returns the sender of a request. Here a header names it; in a program of your own, a layer that
/// has verified a session or a token.
fn user(headers: &HeaderMap) -> Option<Arc<str>> {
    Some(headers.get("x-user")?.to_str().ok()?.into())
}

fn roles(headers: &HeaderMap) -> Roles {
    let is_support = user(headers).is_some_and(|user| &*user == "sue");
    Roles::new(is_support.then_some("support"))
}

/// Answers what has expired, for as long as the server runs.
async fn deny_in_time(agui: AgUi) {
    let mut minutes = tokio::time::interval(Duration::from_secs(60));
    loop {
        minutes.tick().await;
        if let Err(error) = agui.answer_expired().await {
            eprintln!("expired questions stay open: {error}");
        }
    }
}

fn app() -> Result<Router, BoxError> {
    let agui = AgUi::builder(agent()?)
        .principal(|head| user(&head.headers))
        .allow_partial_history()
        .build();
    tokio::spawn(deny_in_time(agui.clone()));
    let inbox = InboxService::new(agui.clone(), |head| roles(&head.headers));
    let app = Router::new()
        .route_service("/agent", agui)
        .route_service("/inbox", inbox);
    Ok(app)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let app = app()?;
    let asked = say(&app, "I want my money back.").await?;
    // The customer's page shows that somebody is waited for, and nothing of the question.
    assert!(asked.contains("WAITING") && asked.contains("\"role\":\"support\""));

    assert_eq!(get(&app, "ada").await?.status(), StatusCode::FORBIDDEN);
    let question = questions(&app).await?["questions"][0].take();
    let call = json!({ "tool": "refund", "arguments": { "order": "A7", "cents": 4990 } });
    assert_eq!(question["payload"], call);

    // The tool runs with what the approver has written, and the agent goes on by itself.
    let edited = json!({ "approved": true, "editedArgs": { "order": "A7", "cents": 4000 } });
    let answer = json!({ "key": question["key"], "id": question["id"], "answer": edited });
    let answered = post(&app, "/inbox", "sue", &answer.to_string()).await?;
    assert_eq!(answered.status(), StatusCode::ACCEPTED);

    // With the next request the page receives what it has missed. The thread is the agent's until
    // it has gone on, and a page would try again.
    let mut thanks = say(&app, "Thank you.").await?;
    while thanks.contains("\"code\":\"busy\"") {
        tokio::task::yield_now().await;
        thanks = say(&app, "Thank you.").await?;
    }
    assert!(thanks.contains("4000 cents were refunded for A7"));
    assert!(thanks.contains("You have 40 euros back."));
    println!("{thanks}");
    Ok(())
}

/// Sends what the customer says, and returns the events of the run.
async fn say(app: &Router, text: &str) -> Result<String, BoxError> {
    let message = Message::user(text, text);
    let input = RunAgentInput::new("thread 1", text, [message]);
    let response = post(app, "/agent", "ada", &serde_json::to_string(&input)?).await?;
    let events = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(events.to_vec())?)
}

async fn questions(app: &Router) -> Result<Value, BoxError> {
    let list = get(app, "sue").await?.into_body().collect().await?;
    Ok(serde_json::from_slice(&list.to_bytes())?)
}

async fn get(app: &Router, user: &str) -> Result<Response, BoxError> {
    let request = Request::get("/inbox").header("x-user", user);
    Ok(app.clone().oneshot(request.body(Body::empty())?).await?)
}

async fn post(app: &Router, path: &str, user: &str, json: &str) -> Result<Response, BoxError> {
    let request = Request::post(path)
        .header("x-user", user)
        .header("content-type", "application/json");
    let request = request.body(Body::from(json.to_owned()))?;
    Ok(app.clone().oneshot(request).await?)
}
