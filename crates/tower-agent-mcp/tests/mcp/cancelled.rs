//! A client cancels a call of an agent: nothing of the agent starts afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_agent::callback::Bundle;
use tower_agent::stream::{EventKind, observer};
use tower_agent::{Agent, ErrorKind, Request, Tool, ToolRequest};
use tower_agent_mcp::server::McpServer;
use tower_agent_test::{ScriptedModel, Turn};

use crate::serving::client_of;
use crate::support::{LIFECYCLES, SOON, ask, connected};

/// The tool before the payment keeps its thread until the cancellation has come, so that nobody
/// polls the run between the two: the payment itself asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_the_cancellation() {
    let begun = Arc::new(Notify::new());
    let paid = Arc::new(AtomicUsize::new(0));
    let (begins, pays) = (begun.clone(), paid.clone());
    let block = Tool::function_with("block", "", move |_: Value, call: ToolRequest| {
        begins.notify_one();
        let began = Instant::now();
        while !call.context().cancellation().is_cancelled() && began.elapsed() < SOON {
            std::thread::yield_now();
        }
        std::future::ready("done")
    });
    let pay = Tool::function("pay", "", move |_: Value| {
        pays.fetch_add(1, Ordering::SeqCst);
        "paid"
    });
    let model = ScriptedModel::always(Turn::tool("block", json!({})).and_tool("pay", json!({})));
    let (observer, mut observations) = observer(1_000);
    let agent = Agent::builder(model)
        .name("clerk")
        .description("Pays.")
        .tools([block, pay])
        .tool_concurrency(1)
        .global_callbacks(Bundle::new().observer(observer))
        .build()
        .unwrap();
    let server = McpServer::builder("test", "1.0.0").agent(agent);
    let server = server.build().unwrap();
    for lifecycle in LIFECYCLES {
        let client = connected(client_of(&server).lifecycle(lifecycle)).await;
        tokio::select! {
            _ = ask(&client, "clerk", json!({ "request": "Pay." })) => panic!("it blocks"),
            () = begun.notified() => {}
        }
        let error = loop {
            let observation = observations.next().await.unwrap();
            if let EventKind::AgentFinished { error, .. } = observation.event.kind {
                break error;
            }
        };
        assert_eq!(error.unwrap().kind(), ErrorKind::Cancelled);
        assert_eq!(paid.load(Ordering::SeqCst), 0);
    }
}
