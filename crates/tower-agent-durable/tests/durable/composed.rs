//! A durable run in a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{Agent, AgentRequest, Tool};
use tower_agent_durable::journal::Durable;
use tower_agent_durable::{Append, SessionKey, SessionLayer, SessionStore, Sqlite};

use crate::memory::Memory;

#[tokio::test]
async fn a_durable_run_goes_on_in_its_session_after_its_process_has_died() {
    let key = SessionKey::new("shop", "ada", "1");
    let journal = Sqlite::in_memory().await.unwrap();
    let paid = Arc::new(AtomicU32::new(0));
    let build = |model: &ScriptedModel| {
        let paid = paid.clone();
        let pay = Tool::function("pay", "Pays.", move |_: Value| {
            paid.fetch_add(1, Ordering::SeqCst);
            "paid"
        });
        let agent = Agent::builder(model.clone()).tool(pay);
        agent.global_callbacks(Durable::new(journal.clone())).build().unwrap()
    };

    let (store, model) =
        (Memory::default(), ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()]));
    let layer = SessionLayer::new(store.clone()).lease(Duration::ZERO);
    let request = key.request(AgentRequest::new("Pay.").with_run_id("run 1"));
    let mut run = Box::pin(layer.layer(build(&model)).oneshot(request));
    while model.requests().len() < 2 {
        assert!(futures::poll!(&mut run).is_pending());
        tokio::task::yield_now().await;
    }
    // What the killed process leaves.
    let left = store.load(&key).await.unwrap().unwrap();
    drop(run);
    layer.finish().await;
    let store = Memory::default();
    store.append(&key, 0, Append::new(left.head, 0).entries(left.entries)).await.unwrap();

    // The same run, and nothing new: the session has its request.
    let model = ScriptedModel::new([Turn::from_text("It is paid.")]);
    let agent = SessionLayer::new(store.clone()).layer(build(&model));
    let again = key.request(AgentRequest::default().with_run_id("run 1"));
    let response = agent.oneshot(again).await.unwrap();
    assert_eq!((response.text(), response.messages().len()), ("It is paid.".into(), 4));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    assert_eq!(store.load(&key).await.unwrap().unwrap().entries.len(), 4);
}
