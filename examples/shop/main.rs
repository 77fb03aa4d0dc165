//! A shop's support bot. A customer asks for a refund, support approves it, and the customer's page
//! shows the result.
//!
//! ```text
//! cargo run -p shop
//! ```
//!
//! Then open the two printed URLs, one as a customer and one as support. The threads are in the
//! SQLite file `SHOP_DB`, so a server that is killed and started again goes on with them.
//!
//! The model is a stand-in; put a real one in its place.

mod serve;
mod stand_in;
mod terminated;

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Html;
use axum::routing::get;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::interval;
use tower_agent::{Agent, BoxError, ErrorKind, Tool};
use tower_agent_agui::AgUi;
use tower_agent_agui::conversations::{ConversationKey, InboxService, Roles, Thread};
use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::Approval;
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
    let approval = Approval::of_tools(["refund"])
        .by_role(SUPPORT)
        .deny_after(Duration::from_secs(24 * 60 * 60));
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
        let customer = run.extension::<ConversationKey>()?.user.clone();
        let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.entry(customer);
        let account = account.or_insert_with(|| Account::new(Limits::new().model_calls(20)));
        Ok(account.clone())
    })
}

/// Returns the sender of a request. In a shop of your own it is in the session; here the page says
/// it.
fn user(headers: &HeaderMap) -> Option<Arc<str>> {
    Some(headers.get("x-user")?.to_str().ok()?.into())
}

fn roles(headers: &HeaderMap) -> Roles {
    let is_support = user(headers).is_some_and(|user| &*user == SUPPORT);
    Roles::new(is_support.then_some(SUPPORT))
}

type Shop = Sqlite;

/// Shows a thread of the customer, on any device.
async fn thread(
    State(threads): State<Shop>,
    headers: HeaderMap,
    Path(thread): Path<Arc<str>>,
) -> Result<Json<Value>, StatusCode> {
    let customer = user(&headers).ok_or(StatusCode::UNAUTHORIZED)?;
    let key = ConversationKey::new(SUPPORT, customer, thread);
    let loaded = Thread::load(&threads, &key).await;
    let loaded = loaded.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let thread = loaded.ok_or(StatusCode::NOT_FOUND)?;
    let mut messages = Vec::new();
    for message in &thread.messages() {
        messages.push(json!({ "role": message.role(), "text": message.text() }));
    }
    let waits = thread.is_waiting();
    let is_busy = waits || thread.is_running();
    let shown = json!({ "messages": messages, "isBusy": is_busy, "isWaiting": waits });
    Ok(Json(shown))
}

/// Denies what support has not answered in time, whether the customer is there or not.
async fn deny_in_time(agui: AgUi) {
    let mut minutes = interval(Duration::from_secs(60));
    loop {
        minutes.tick().await;
        if let Err(error) = agui.answer_expired().await {
            eprintln!("expired questions stay open: {error}");
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let file = env::var("SHOP_DB").unwrap_or_else(|_| "shop.db".into());
    let threads = Sqlite::open(file).await?;
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
    tokio::spawn(deny_in_time(agui.clone()));
    let inbox = InboxService::new(agui.clone(), |head| roles(&head.headers));
    let app = Router::new()
        .route("/", get(Html(include_str!("customer.html"))))
        .route("/staff", get(Html(include_str!("staff.html"))))
        .route_service("/agent", agui.clone())
        .route("/threads/{thread}", get(thread))
        .route_service("/inbox", inbox)
        .with_state(threads);

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    println!("http://{address}/?as=ada\nhttp://{address}/staff");
    Ok(serve::serve(listener, app, agui).await?)
}
