//! A shop's support bot. A customer asks for a refund, support approves it, and the customer's page
//! shows the result.
//!
//! ```text
//! cargo run -p shop
//! ```
//!
//! Then open the two printed URLs, one as a customer and one as support. The threads are in the SQLite
//! file `SHOP_DB`, so a server that is killed and started again goes on with them.
//!
//! The model is a stand-in; put a real one in its place.

mod serve;
mod stand_in;

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Html;
use axum::routing::get;
use axum::{Json, Router};
use futures::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_agent::{Agent, BoxError, ErrorKind, Resolution, Tool};
use tower_agent_agui::AgUi;
use tower_agent_agui::threads::{Roles, ThreadKey, ThreadQuery, ThreadStore};
use tower_agent_durable::{SessionThreads, Sqlite};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Account, Budget, Limits};

/// The name of the server, and the role of those who approve refunds.
const SUPPORT: &str = "support";

#[derive(Deserialize, JsonSchema)]
struct Refund {
    /// The number of the order.
    order: String,
    cents: u32,
}

fn agent() -> Result<Agent, BoxError> {
    let refund = Tool::function("refund", "Refunds an order.", |refund: Refund| {
        format!("{} cents were refunded for {}", refund.cents, refund.order)
    });
    // By support and not by the customer, who profits.
    let approval = Approval::of_tools(["refund"]).by_role(SUPPORT);
    let agent = Agent::builder(stand_in::model())
        .instructions("You help the customers of a shop.")
        .tool(refund)
        .on_tool(approval.allow_edits())
        .global_callbacks(budget())
        .build()?;
    Ok(agent)
}

/// Charges each run to its customer, who may ask the model so often.
fn budget() -> Budget {
    let accounts = Mutex::new(HashMap::new());
    Budget::by(move |run| {
        let customer = run.extension::<ThreadKey>()?.principal.clone();
        let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.entry(customer);
        let account = account.or_insert_with(|| Account::new(Limits::new().model_calls(20)));
        Ok(account.clone())
    })
}

/// Returns the sender of a request. In a shop of your own it is in the session; here the page says it.
fn user(headers: &HeaderMap) -> Option<Arc<str>> {
    Some(headers.get("x-user")?.to_str().ok()?.into())
}

fn roles(headers: &HeaderMap) -> Roles {
    let is_support = user(headers).is_some_and(|user| &*user == SUPPORT);
    Roles::new(is_support.then_some(SUPPORT))
}

/// The server and its threads.
#[derive(Clone)]
struct Shop {
    agui: AgUi,
    threads: Arc<SessionThreads<Sqlite>>,
}

type Reply = Result<Json<Value>, StatusCode>;

fn down(_: impl Into<BoxError>) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

/// Shows a thread of the customer, on any device.
async fn thread(
    State(shop): State<Shop>,
    headers: HeaderMap,
    Path(thread): Path<Arc<str>>,
) -> Reply {
    let customer = user(&headers).ok_or(StatusCode::UNAUTHORIZED)?;
    let key = ThreadKey::new(SUPPORT, thread).with_principal(Some(customer));
    let thread = shop.threads.load(&key).await.map_err(down)?;
    let thread = thread.ok_or(StatusCode::NOT_FOUND)?;
    let mut messages = Vec::new();
    for message in &thread.messages() {
        messages.push(json!({ "role": message.role(), "text": message.text() }));
    }
    let waits = thread.is_waiting();
    let is_busy = waits || thread.is_running();
    let shown = json!({ "messages": messages, "isBusy": is_busy, "isWaiting": waits });
    Ok(Json(shown))
}

/// Lists the questions that the sender may answer.
async fn questions(State(shop): State<Shop>, headers: HeaderMap) -> Reply {
    let all = ThreadQuery::new();
    let roles = roles(&headers);
    let page = shop.agui.questions(&all, &roles).await.map_err(down)?;
    let questions = page.questions.into_iter().map(|question| {
        let key = question.key;
        let call = question.interrupt.payload;
        json!({ "id": question.id, "customer": key.principal, "thread": key.thread, "call": call })
    });
    Ok(Json(questions.collect()))
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    customer: Arc<str>,
    thread: Arc<str>,
    /// `None` rejects the call.
    arguments: Option<Value>,
}

/// Answers a question. The agent goes on here, whether the customer is there or not.
async fn answer(
    State(shop): State<Shop>,
    headers: HeaderMap,
    Json(answer): Json<Answer>,
) -> Result<StatusCode, (StatusCode, String)> {
    let declined = Decision::reject("support has declined");
    let decision = answer.arguments.map_or(declined, Decision::Edit);
    let key = ThreadKey::new(SUPPORT, answer.thread).with_principal(Some(answer.customer));
    let resolution = Resolution::resolved(answer.id, decision);
    let run = shop.agui.answer(key, roles(&headers), resolution).await;
    let mut run = run.map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
    tokio::spawn(async move { while run.next().await.is_some() {} });
    Ok(StatusCode::ACCEPTED)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let file = env::var("SHOP_DB").unwrap_or_else(|_| "shop.db".into());
    let threads = Arc::new(SessionThreads::new(Sqlite::open(file).await?));
    let agui = AgUi::builder(agent()?)
        .name(SUPPORT)
        .principal(|head| user(&head.headers))
        .threads(threads.clone())
        .allow_partial_history()
        // A customer waits for so long after a crash.
        .lease(Duration::from_secs(5))
        .failure_message(|error, _| {
            let is_used_up = error.kind() == ErrorKind::BudgetExceeded;
            is_used_up.then(|| "You have used up today's answers.".into())
        })
        .build();
    let shop = Shop { agui, threads };
    let app = Router::new()
        .route("/", get(Html(include_str!("customer.html"))))
        .route("/staff", get(Html(include_str!("staff.html"))))
        .route_service("/agent", shop.agui.clone())
        .route("/threads/{thread}", get(thread))
        .route("/questions", get(questions).post(answer))
        .with_state(shop.clone());

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    println!("http://{address}/?as=ada\nhttp://{address}/staff");
    Ok(serve::serve(listener, app, shop.agui).await?)
}
