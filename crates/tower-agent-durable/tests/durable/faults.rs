//! Stores that fail, and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tokio::sync::Mutex;
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, AgentRequest, ErrorKind, Message, Tool};
use tower_agent_conversations::{
    Append, ConversationKey, ConversationStore, NotStored, Session, SessionLayer,
};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::Sqlite;

use crate::disk::SmallDisk;
use crate::memory::Memory;
use crate::support::server::Server;

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

/// An agent with a tool that does this.
fn agent(model: &ScriptedModel, act: impl Fn() + Clone + Send + Sync + 'static) -> Agent {
    let act = Tool::function("act", "Acts.", move |_: Value| {
        act();
        "done"
    });
    Agent::builder(model.clone()).tool(act).build().unwrap()
}

fn acts_and_says(text: &str) -> [Turn; 2] {
    [Turn::tool("act", json!({})), Turn::from_text(text)]
}

#[tokio::test]
async fn a_store_that_is_down_is_an_error_and_the_model_is_not_called() {
    let (store, model) = (
        Memory::default(),
        ScriptedModel::new([Turn::from_text("Hi.")]),
    );
    let agent = SessionLayer::new(store.clone()).layer(agent(&model, || {}));
    store.inner().is_down = true;
    let error = agent
        .clone()
        .oneshot(key().request("Hi."))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(model.requests().is_empty());
    store.inner().is_down = false;
    // The same request is not taken for another attempt of one that is stored.
    let response = agent.oneshot(key().request("Hi.")).await.unwrap();
    assert_eq!(response.messages().len(), 2);
}

#[tokio::test]
async fn an_answer_that_cannot_be_stored_is_in_the_error_and_can_be_stored_later() {
    let (store, model) = (
        Memory::default(),
        ScriptedModel::new(acts_and_says("Done.")),
    );
    let down = store.clone();
    let agent = agent(&model, move || down.inner().is_down = true);
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let error = agent
        .clone()
        .oneshot(key().request("Act."))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(error.checkpoint().unwrap().messages.len(), 4);
    let unstored = error.downcast_ref::<NotStored>().unwrap();
    assert_eq!(unstored.result().as_ref().unwrap().text(), "Done.");
    unstored.store().await.unwrap_err();

    store.inner().is_down = false;
    // Nobody else gets the session meanwhile.
    let refused = agent
        .clone()
        .oneshot(key().request("Hi."))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    unstored.store().await.unwrap();
    unstored.store().await.unwrap();
    let session = Session::load(&store, &key()).await.unwrap().unwrap();
    assert_eq!(
        (session.checkpoint.messages.len(), session.is_running),
        (4, false)
    );
}

#[tokio::test]
async fn a_write_that_came_through_although_it_failed_is_not_written_twice() {
    let (store, model) = (
        Memory::default(),
        ScriptedModel::new(acts_and_says("Done.")),
    );
    let unsure = store.clone();
    let agent = agent(&model, move || unsure.inner().is_unsure = true);
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let error = agent.oneshot(key().request("Act.")).await.unwrap_err();
    store.inner().is_unsure = false;
    let written = store.inner().appends.len();
    error
        .downcast_ref::<NotStored>()
        .unwrap()
        .store()
        .await
        .unwrap();
    assert_eq!(store.inner().appends.len(), written);
}

#[tokio::test(start_paused = true)]
async fn a_run_renews_its_lease() {
    let (store, model) = (
        Memory::default(),
        ScriptedModel::new([Turn::from_text("Hi.").latency(Duration::from_secs(100))]),
    );
    let agent = SessionLayer::new(store.clone()).layer(agent(&model, || {}));
    agent.oneshot(key().request("Hi.")).await.unwrap();
    // At the start, every 15 seconds, and at the end.
    assert_eq!(store.inner().appends.len(), 1 + 6 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_came_through_although_it_failed_does_not_cost_the_session() {
    let late = Turn::from_text("Done.").latency(Duration::from_secs(20));
    let model = ScriptedModel::new([Turn::tool("act", json!({})), late]);
    let store = Memory::default();
    let unsure = store.clone();
    let agent = agent(&model, move || {
        unsure.inner().is_unsure = true;
        let unsure = unsure.clone();
        // After the renewal.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(17)).await;
            unsure.inner().is_unsure = false;
        });
    });
    let agent = SessionLayer::new(store.clone()).layer(agent);
    assert_eq!(
        agent.oneshot(key().request("Act.")).await.unwrap().text(),
        "Done."
    );
    assert_eq!(store.inner().appends.len(), 3);
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        4
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_session_was_taken_ends_and_writes_nothing() {
    let late = Turn::from_text("Too late.").latency(Duration::from_secs(100));
    let (store, model) = (
        Memory::default(),
        ScriptedModel::new([Turn::tool("act", json!({})), late]),
    );
    let other = store.clone();
    let agent = agent(&model, move || other.touch(&key()));
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let error = agent.oneshot(key().request("Act.")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.checkpoint().unwrap().messages.len(), 3);
    assert_eq!(store.inner().appends.len(), 1);
}

#[tokio::test]
async fn the_session_of_a_process_that_died_is_free_after_its_lease() {
    let store = Memory::default();
    let acted = Arc::new(AtomicU32::new(0));
    let count = acted.clone();
    let count = move || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    let model = ScriptedModel::new([Turn::pending(), Turn::from_text("Hello.")]);
    let dies = SessionLayer::new(store.clone()).layer(agent(&model, count));
    // The data of a process that is killed here.
    let mut run = Box::pin(dies.clone().oneshot(key().request("Hi.")));
    while model.requests().is_empty() {
        assert!(futures::poll!(&mut run).is_pending());
        tokio::task::yield_now().await;
    }
    let left = store.load(&key(), 0).await.unwrap().unwrap();
    drop(run);

    let after = Memory::default();
    after
        .append(&key(), 0, Append::new(left.head, 0).entries(left.entries))
        .await
        .unwrap();
    let response = SessionLayer::new(EndedLeases(after)).layer(agent(&model, || {}));
    let response = response
        .oneshot(key().request(AgentRequest::default()))
        .await
        .unwrap();
    assert_eq!(
        (response.text(), response.messages().len()),
        ("Hello.".into(), 2)
    );
}

#[tokio::test]
async fn a_call_that_a_lost_run_may_have_started_is_not_repeated() {
    // A run that has resumed an open call, and whose lease has ended.
    let asks = r#"{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"act","arguments":{}}]}"#;
    let asks: Message = serde_json::from_str(asks).unwrap();
    let head = json!({
        "kind": "session",
        "format": 1,
        "writer": "lost",
        "entries": "1",
        "claim": { "until": 0, "run": "lost", "since": 0, "resumes": true },
        "body": {
            "checkpoint": { "version": 1, "interrupts": [], "turn": 2 },
            "open": [asks],
        },
    });
    let store = Memory::default();
    let user = serde_json::to_string(&Message::user("Act.")).unwrap();
    let append = Append::new(head.to_string(), 0).entries(vec![user]);
    store.append(&key(), 0, append).await.unwrap();

    let acted = Arc::new(AtomicU32::new(0));
    let count = acted.clone();
    let model = ScriptedModel::new([Turn::from_text("I do not know.")]);
    let agent = agent(&model, move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let response = agent.oneshot(key().request("Was it done?")).await.unwrap();
    assert_eq!(acted.load(Ordering::SeqCst), 0);
    let answer = response.messages()[2].tool_results().next().unwrap();
    assert!(
        serde_json::to_string(&answer.parts)
            .unwrap()
            .contains("outcome is unknown")
    );
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        5
    );
}

#[tokio::test]
async fn a_full_disk_is_an_error_loses_nothing_and_goes_on_with_more_space() {
    let Some(disk) = SmallDisk::mount("full") else {
        return;
    };
    disk.fill(512 << 10);
    let store = Sqlite::open(disk.file("a.db")).await.unwrap();
    let entry = format!("\"{}\"", "x".repeat(10_000));
    let (mut version, mut written) = (0, 0);
    let append = |from: usize| Append::new("{}", from).entries(vec![entry.clone()]);
    let error = loop {
        match store.append(&key(), version, append(written)).await {
            Ok(new) => (version, written) = (new, written + 1),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("full"), "{error}");
    assert!(written > 5, "{written}");
    let session = store.load(&key(), 0).await.unwrap().unwrap();
    assert_eq!((session.version, session.entries.len()), (version, written));

    disk.free();
    store
        .append(&key(), version, append(written))
        .await
        .unwrap();
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        written + 1
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_an_error_loses_nothing_and_goes_on_when_it_is_back() {
    let Some(server) = Server::start("away") else {
        return;
    };
    let store = Arc::new(server.connect().await);
    let server = Arc::new(Mutex::new(server));
    let stops = server.clone();
    let stop = move || stops.try_lock().unwrap().stop();
    let turns = [Turn::from_text("Hello.")]
        .into_iter()
        .chain(acts_and_says("Done."));
    let model = ScriptedModel::new(turns.chain([Turn::from_text("Yes.")]));
    let agent = SessionLayer::new(store.clone()).layer(agent(&model, stop));
    agent.clone().oneshot(key().request("Hi.")).await.unwrap();

    // It goes away during a run.
    let error = agent
        .clone()
        .oneshot(key().request("Act."))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    let unstored = error.downcast_ref::<NotStored>().unwrap();
    assert_eq!(unstored.result().as_ref().unwrap().text(), "Done.");
    // And is away before one.
    let error = agent
        .clone()
        .oneshot(key().request("And?"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert_eq!(model.requests().len(), 3);

    server.lock().await.resume();
    unstored.store().await.unwrap();
    let response = agent.oneshot(key().request("And?")).await.unwrap();
    assert_eq!(
        (response.text(), response.messages().len()),
        ("Yes.".into(), 8)
    );
}
