//! Threads as a layer around an agent.

use std::future::ready;
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::store::{Fate, FatedStore};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_agent::stream::EventKind;
use tower_agent::{Agent, ErrorKind, Message, Tool};
use tower_agent_conversations::{
    ClientInput, ConversationStore, MemoryConversations, Refusal, RefusalKind, Thread,
    ThreadRequest, Threads,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::{Cashier, Plain, approve, key};

fn request(run: &str, messages: Vec<Plain>) -> ThreadRequest<Plain> {
    ThreadRequest::new(key(), ClientInput::new(run.to_owned(), messages))
}

async fn left(store: &impl ConversationStore) -> Vec<String> {
    let thread = Thread::load(store, &key()).await.unwrap().unwrap();
    let said = |message: &Message| {
        let results = message.tool_results().map(|result| result.text());
        [message.text()].into_iter().chain(results).collect()
    };
    thread.messages().iter().map(said).collect()
}

#[tokio::test]
async fn a_client_talks_with_an_agent_in_its_thread() {
    let store = Arc::new(MemoryConversations::new());
    let cashier = Cashier::new([
        Turn::from_text("Hello."),
        Turn::tool("pay", json!({})),
        Turn::from_text("Paid."),
    ]);
    let threads = Threads::new(store.clone()).allow_partial_history();
    let chat = ServiceBuilder::new()
        .layer(threads)
        .service(cashier.agent.clone());

    let run = chat
        .clone()
        .oneshot(request("r1", vec![Plain::user("m1", "Hi.")]))
        .await
        .unwrap();
    assert_eq!(run.response().await.unwrap().text(), "Hello.");
    let pays = request("r2", vec![Plain::user("m2", "Pay.")]);
    let mut run = chat.clone().oneshot(pays).await.unwrap();
    while let Some(event) = run.next().await {
        event.unwrap();
    }
    let ids = run.interrupt_ids().clone();
    let asked = run.response().await.unwrap();
    let id = ids.of(&asked.interrupts()[0].id);
    assert_eq!(cashier.paid(), 0);

    let mut yes = request("r3", Vec::new());
    yes.input.answers = approve(&id);
    let run = chat.clone().oneshot(yes.clone()).await.unwrap();
    assert_eq!(run.response().await.unwrap().text(), "Paid.");
    assert_eq!(cashier.paid(), 1);
    assert_eq!(
        left(&store).await,
        ["Hi.", "Hello.", "Pay.", "", "paid", "Paid."]
    );
    let refused: Refusal = chat.oneshot(yes).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotOpen);
}

#[tokio::test]
async fn a_stream_that_is_dropped_leaves_what_its_client_has_read() {
    let store = Arc::new(MemoryConversations::new());
    let threads = Threads::new(store.clone()).allow_partial_history();
    let turns = [Turn::tool("look", json!({})), Turn::pending()];
    let look = Tool::function("look", "Looks.", |_: Value| "seen");
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(look);
    let chat = threads.layer(agent.build().unwrap());
    let mut run = chat
        .clone()
        .oneshot(request("r1", vec![Plain::user("m1", "Hi.")]))
        .await
        .unwrap();
    loop {
        let event = run.next().await.unwrap().unwrap();
        if matches!(event.kind, EventKind::ToolResult(_)) {
            // The event comes after the save.
            assert_eq!(left(&store).await, ["Hi.", "", "seen"]);
            break;
        }
    }
    let other = chat
        .clone()
        .oneshot(request("r2", vec![Plain::user("m2", "And?")]));
    assert_eq!(other.await.unwrap_err().kind, RefusalKind::Busy);
    drop(run);
    threads.finish().await;
    assert_eq!(left(&store).await, ["Hi.", "", "seen"]);
    let thread = Thread::load(&store, &key()).await.unwrap().unwrap();
    assert!(!thread.is_running());
}

#[tokio::test]
async fn a_run_whose_progress_cannot_be_saved_is_stopped() {
    // The claim is made, and nothing after it.
    let store = Arc::new(FatedStore::new(|write| {
        ready(if write.number == 0 {
            Fate::Made
        } else {
            Fate::Failed
        })
    }));
    let cashier = Cashier::new([Turn::from_text("Hello.")]);
    let threads = Threads::new(store.clone());
    let chat = threads.layer(cashier.agent.clone());
    let run = chat
        .oneshot(request("r1", vec![Plain::user("m1", "Hi.")]))
        .await
        .unwrap();
    let error = run.response().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(left(&store).await, ["Hi."]);
}
