//! An agent behind HTTP, over real sockets.

mod approver;
mod client;
mod devices;
mod events;
mod extremes;
mod flow;
mod inbox;
mod layers;
mod limits;
mod refusals;
mod runs;
mod shutdown;

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_agent::Agent;
use tower_agent_agui::AgUi;
use tower_agent_test::{ScriptedModel, Turn};

use crate::rules;

/// A server on a free port of the loopback, which is ended when this is dropped.
struct Served {
    address: std::net::SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the agent at `/agent`, in one line.
async fn serve(agui: AgUi) -> Served {
    app(Router::new().route_service("/agent", agui)).await
}

async fn app(app: Router) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Served { address, task }
}

fn agent(turns: impl IntoIterator<Item = Turn>) -> Agent {
    Agent::builder(ScriptedModel::new(turns)).build().unwrap()
}

/// Returns the body that a front end posts.
fn input() -> Value {
    json!({
        "threadId": "t",
        "runId": "r",
        "messages": [{ "id": "u", "role": "user", "content": "Hello" }],
    })
}
