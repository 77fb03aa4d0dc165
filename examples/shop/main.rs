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

mod stand_in;

use std::collections::HashMap;
use std::env;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_agent::{Agent, AgentRequest, BoxError, ErrorKind, Resolution, Tool};
use tower_agent_agui::AgUi;
use tower_agent_agui::threads::{Roles, ThreadKey, ThreadQuery, ThreadStore};
use tower_agent_durable::{SessionThreads, Sqlite};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Account, Budget, Limits};

/// The name of the server, under which its threads are stored.
const NAME: &str = "support";

/// The role of those who approve refunds.
const SUPPORT: &str = "support";

/// The sender of a request.
#[derive(Clone)]
struct User {
    name: Arc<str>,
    roles: Roles,
}

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
    let agent = Agent::builder(stand_in::model())
        .name("support")
        .instructions("You help the customers of a shop.")
        .tool(refund)
        // By support and not by the customer, who profits.
        .on_tool(
            Approval::of_tools(["refund"])
                .by_role(SUPPORT)
                .allow_edits(),
        )
        .build()?;
    Ok(agent)
}

/// The budget of each customer.
#[derive(Clone, Default)]
struct Accounts(Arc<Mutex<HashMap<Arc<str>, Account>>>);

impl Accounts {
    /// Adds the budget of its customer to a run.
    fn charge(&self, request: AgentRequest) -> AgentRequest {
        let Some(key) = request.extensions().get::<ThreadKey>() else {
            return request;
        };
        let customer = key.principal.clone().unwrap_or_default();
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts
            .entry(customer)
            .or_insert_with(|| Account::new(Limits::new().model_calls(20)));
        let budget = Budget::of(account.clone());
        request.with_callbacks(budget)
    }
}

/// Finds out who sends a request. In a shop of your own it looks at the session's cookie; here the
/// sender says it.
async fn log_in(mut request: Request, next: Next) -> Response {
    let name = request.headers().get("x-user");
    let Some(name) = name.and_then(|name| name.to_str().ok()) else {
        return (StatusCode::UNAUTHORIZED, "log in first").into_response();
    };
    let is_support = name == "support";
    let user = User {
        name: name.into(),
        roles: Roles::new(is_support.then_some(SUPPORT)),
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// The server and its threads.
#[derive(Clone)]
struct Shop {
    agui: AgUi,
    threads: Arc<SessionThreads<Sqlite>>,
}

/// Shows a thread of the customer, on any device.
async fn thread(
    State(shop): State<Shop>,
    Extension(user): Extension<User>,
    Path(thread): Path<Arc<str>>,
) -> Result<Json<Value>, StatusCode> {
    let key = ThreadKey::new(NAME, thread).with_principal(Some(user.name));
    let thread = shop.threads.load(&key).await;
    let thread = thread.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let thread = thread.ok_or(StatusCode::NOT_FOUND)?;
    let mut messages = Vec::new();
    for message in &thread.messages() {
        messages.push(json!({ "role": message.role(), "text": message.text() }));
    }
    let is_running = thread.is_running();
    let is_waiting = thread.is_waiting();
    Ok(Json(
        json!({ "messages": messages, "isRunning": is_running, "isWaiting": is_waiting }),
    ))
}

/// Lists the questions that the sender may answer.
async fn questions(
    State(shop): State<Shop>,
    Extension(user): Extension<User>,
) -> Result<Json<Value>, StatusCode> {
    let page = shop.agui.questions(&ThreadQuery::new(), &user.roles).await;
    let page = page.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let questions = page.questions.iter().map(|question| {
        json!({
            "id": question.id,
            "customer": question.key.principal,
            "thread": question.key.thread,
            "call": question.interrupt.payload,
        })
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
    Extension(user): Extension<User>,
    Json(answer): Json<Answer>,
) -> Result<StatusCode, (StatusCode, String)> {
    let decision = match answer.arguments {
        Some(arguments) => Decision::Edit(arguments),
        None => Decision::reject("support has declined"),
    };
    let key = ThreadKey::new(NAME, answer.thread).with_principal(Some(answer.customer));
    let resolution = Resolution::resolved(answer.id, decision);
    let run = shop.agui.answer(key, user.roles, resolution).await;
    let mut run = run.map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
    tokio::spawn(async move { while run.next().await.is_some() {} });
    Ok(StatusCode::ACCEPTED)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let file = env::var("SHOP_DB").unwrap_or_else(|_| "shop.db".into());
    let threads = Arc::new(SessionThreads::new(Sqlite::open(file).await?));
    let accounts = Accounts::default();
    let agent = ServiceBuilder::new()
        .map_request(move |request| accounts.charge(request))
        .service(agent()?);
    let agui = AgUi::builder(agent)
        .name(NAME)
        .principal(|head: &Parts| Some(head.extensions.get::<User>()?.name.clone()))
        .threads(threads.clone())
        .allow_partial_history()
        .failure_message(|error, _| {
            let is_used_up = error.kind() == ErrorKind::BudgetExceeded;
            is_used_up.then(|| "You have used up today's answers.".into())
        })
        // For so long, a customer waits after a crash.
        .lease(Duration::from_secs(5))
        .build();
    let shop = Router::new()
        .route_service("/agent", agui.clone())
        .route("/threads/{thread}", get(thread))
        .route("/questions", get(questions).post(answer))
        .layer(from_fn(log_in))
        .with_state(Shop { agui, threads })
        .route("/", get(Html(include_str!("customer.html"))))
        .route("/staff", get(Html(include_str!("staff.html"))));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into()).parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    println!("http://{address}/?as=ada\nhttp://{address}/staff");
    Ok(axum::serve(listener, shop).await?)
}
