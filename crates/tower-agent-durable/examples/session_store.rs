//! Conversations of many users in a database: a next turn, an approval, a second click, a restart.
//!
//! `cargo run --example session_store`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, AgentRequest, BoxError, ErrorKind, Resolution, Tool};
use tower_agent_conversations::{
    ConversationKey, ConversationQuery, ConversationStore, Session, SessionLayer, SessionService,
};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::{Approval, Decision};

/// What a process sets up when it starts.
async fn start(
    file: &Path,
    paid: &Arc<AtomicU32>,
    turns: Vec<Turn>,
) -> Result<(Sqlite, SessionService<Agent>), BoxError> {
    let paid = paid.clone();
    let refund = Tool::function("refund", "Refunds an order.", move |order: String| {
        paid.fetch_add(1, Ordering::SeqCst);
        format!("order {order} is refunded")
    });
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(refund);
    let agent = agent.on_tool(Approval::of_tools(["refund"])).build()?;
    let store = Sqlite::open(file).await?;
    let sessions = SessionLayer::new(store.clone()).ttl(Duration::from_secs(30 * 24 * 3600));
    Ok((store, sessions.layer(agent)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let file = std::env::temp_dir().join(format!("sessions-{}.db", std::process::id()));
    let paid = Arc::new(AtomicU32::new(0));
    // The user is known from a login, and not from what a client says.
    let key = ConversationKey::new("shop", "ada", "2026-11-22");

    // Two turns: each request has only what is new.
    let turns = vec![
        Turn::from_text("Hello, Ada."),
        Turn::tool("refund", json!({ "value": "A7" })),
    ];
    let (store, shop) = start(&file, &paid, turns).await?;
    shop.clone().oneshot(key.request("I am Ada.")).await?;
    shop.oneshot(key.request("Refund order A7.")).await?;
    store.close().await;

    // Another process finds the conversation and its open question.
    let turns = vec![Turn::from_text("Your refund is on its way.")];
    let (store, shop) = start(&file, &paid, turns).await?;
    let session = Session::load(&store, &key)
        .await?
        .ok_or("the session is kept")?;
    let open = session.checkpoint.head.interrupts.clone();
    println!(
        "{} messages; waits for {:?}",
        session.checkpoint.messages.len(),
        open[0].message
    );
    let yes = || {
        let yes = open
            .iter()
            .map(|interrupt| Resolution::resolved(&interrupt.id, Decision::Approve));
        key.request(AgentRequest::default().with_resolutions(yes))
    };
    let response = shop.clone().oneshot(yes()).await?;
    println!("{}", response.text());

    // The second click comes too late.
    let refused = shop.oneshot(yes()).await.err().ok_or("it was answered")?;
    println!("{refused}");
    assert_eq!(
        (refused.kind(), paid.load(Ordering::SeqCst)),
        (ErrorKind::Conflict, 1)
    );

    // Ada's sessions; and she may have them deleted.
    let listed = store
        .list(&ConversationQuery::new().app("shop").user("ada"))
        .await?;
    assert_eq!(listed.len(), 1);
    store.delete(&key).await?;
    store.close().await;
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    Ok(())
}
