//! The messages of a run: each is stored once, by its session or by the run.

use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_agent::agent::SavedRequest;
use tower_agent::{Agent, AgentRequest, Effect};
use tower_agent_agui::AgUi;
use tower_agent_conversations::{ConversationKey, ConversationStore, SessionLayer};
use tower_agent_durable::journal::{JournalError, RunKey, RunStatus};

use tower_agent_durable::{Postgres, Sqlite, StoreError, UserData};
use tower_agent_middleware::approval::Approval;

use crate::support::folder::Folder;
use crate::support::place::Database;
use crate::support::server::Server;
use crate::support::{Count, calling, counting, durable, saying};

/// A database of sessions and runs, with what it has of a user.
trait Both: Database + ConversationStore + Clone {
    async fn export(&self, user: &str) -> UserData;
}

impl Both for Sqlite {
    async fn export(&self, user: &str) -> UserData {
        self.export_user(user).await.unwrap()
    }
}

impl Both for Postgres {
    async fn export(&self, user: &str) -> UserData {
        self.export_user(user).await.unwrap()
    }
}

fn agent(database: &impl Both) -> Agent {
    durable(saying("Hello."), database.clone()).build().unwrap()
}

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

fn run(name: &str) -> RunKey {
    RunKey::new(name).of("ada")
}

/// Has a conversation of three turns in the session, each a run of its own.
async fn talk<S: ConversationStore + Clone>(sessions: &S, database: &impl Both) {
    let layer = SessionLayer::new(sessions.clone());
    for turn in 0..3 {
        let request = AgentRequest::new(format!("Turn {turn}."));
        let request = request.with_run_id(format!("run {turn}"));
        let agent = layer.layer(agent(database));
        agent.oneshot(key().request(request)).await.unwrap();
    }
}

/// Returns the texts of the messages of a run's request.
async fn request_of(database: &impl Both, run: RunKey) -> Result<Vec<String>, JournalError> {
    let messages = database.runs().messages(run).await?;
    Ok(messages.iter().map(|message| message.text()).collect())
}

/// Returns the number of messages that each run has of its own, the latest run first.
async fn own_messages(database: &impl Both) -> Vec<usize> {
    let data = database.export("ada").await;
    data.runs.iter().map(|run| run.messages.len()).collect()
}

async fn a_session_has_the_messages(database: impl Both) {
    talk(&database, &database).await;
    assert_eq!(own_messages(&database).await, [0, 0, 0]);
    // The session has gone on since.
    let request = request_of(&database, run("run 1")).await.unwrap();
    assert_eq!(request, ["Turn 0.", "Hello.", "Turn 1."]);
}

#[tokio::test]
async fn a_run_has_the_messages_of_its_session_also_when_that_has_gone_on() {
    a_session_has_the_messages(Sqlite::in_memory().await.unwrap()).await;
    if let Some(server) = Server::start("messages-session") {
        a_session_has_the_messages(server.connect().await).await;
    }
}

async fn a_session_is_deleted(database: impl Both) {
    talk(&database, &database).await;
    database.delete(&key()).await.unwrap();
    let refused = request_of(&database, run("run 1")).await.unwrap_err();
    assert!(
        matches!(&refused, JournalError::SessionDeleted { run } if **run == *"run 1"),
        "{refused}"
    );
    // All but the conversation is there.
    let runs = database.runs();
    let refused = runs.request(run("run 1")).await.unwrap_err();
    assert!(
        matches!(refused, JournalError::SessionDeleted { .. }),
        "{refused}"
    );
    let info = runs.get(run("run 1")).await.unwrap();
    assert_eq!(info.status, RunStatus::Completed);
    assert_eq!(runs.steps(run("run 1")).await.unwrap().len(), 1);

    // A session of the same key is another one.
    talk(&database, &database).await;
    let refused = request_of(&database, run("run 1")).await.unwrap_err();
    assert!(
        matches!(refused, JournalError::SessionDeleted { .. }),
        "{refused}"
    );
    runs.delete(run("run 1")).await.unwrap();
}

#[tokio::test]
async fn a_run_whose_session_was_deleted_says_so() {
    a_session_is_deleted(Sqlite::in_memory().await.unwrap()).await;
    if let Some(server) = Server::start("messages-deleted") {
        a_session_is_deleted(server.connect().await).await;
    }
}

async fn the_session_is_elsewhere(database: impl Both) {
    let elsewhere = Sqlite::in_memory().await.unwrap();
    // A session of the same key with other messages.
    let other = SessionLayer::new(database.clone()).layer(agent(&database));
    other.oneshot(key().request("Another.")).await.unwrap();
    talk(&elsewhere, &database).await;
    assert_eq!(own_messages(&database).await, [5, 3, 1, 0]);
    elsewhere.delete(&key()).await.unwrap();
    let request = request_of(&database, run("run 1")).await.unwrap();
    assert_eq!(request, ["Turn 0.", "Hello.", "Turn 1."]);
}

#[tokio::test]
async fn a_run_has_the_messages_of_a_session_in_another_store_itself() {
    the_session_is_elsewhere(Sqlite::in_memory().await.unwrap()).await;
    if let Some(server) = Server::start("messages-elsewhere") {
        the_session_is_elsewhere(server.connect().await).await;
    }
}

async fn a_thread_has_the_messages(database: impl Both) {
    let server = AgUi::builder(agent(&database))
        .threads(database.clone())
        .allow_partial_history()
        .build();
    for turn in 0..3 {
        let message =
            json!({ "id": format!("m{turn}"), "role": "user", "content": format!("Turn {turn}.") });
        let input = json!({ "threadId": "t", "runId": format!("r{turn}"), "messages": [message] });
        let input = serde_json::from_value(input).unwrap();
        let run = server.run_for("ada", input).await.unwrap();
        drop(futures::StreamExt::collect::<Vec<_>>(run).await);
    }
    assert_eq!(own_messages(&database).await, [0, 0, 0]);
    let data = database.export("ada").await;
    let request = request_of(&database, run(&data.runs[1].run)).await.unwrap();
    assert_eq!(request, ["Turn 0.", "Hello.", "Turn 1."]);
}

#[tokio::test]
async fn a_run_has_the_messages_of_its_thread() {
    a_thread_has_the_messages(Sqlite::in_memory().await.unwrap()).await;
    if let Some(server) = Server::start("messages-thread") {
        a_thread_has_the_messages(server.connect().await).await;
    }
}

async fn a_run_without_a_session(database: impl Both) {
    let talked = agent(&database).run("Hi.").await.unwrap();
    let calls = Count::default();
    let pays = durable(calling(&["pay", "pay"], &calls), database.clone())
        .tool(counting("pay", Effect::Mutating, &calls))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let request = AgentRequest::resume(talked.checkpoint()).with_message("Pay twice.");
    let mut waits = pays.run(run("run 1").request(request)).await.unwrap();
    for round in 1..=2 {
        // Its end has what it has added.
        let data = database.export("ada").await;
        let end = data.runs[0].end.clone().unwrap();
        let added = end.pointer("/end/waiting/checkpoint/messages").unwrap();
        assert!(added.as_array().unwrap().len() <= 2, "{added}");

        let next = database.runs().request(run("run 1")).await.unwrap();
        let saved = SavedRequest::from(&next);
        let all = waits.checkpoint().messages;
        assert_eq!(saved.checkpoint().messages, all, "round {round}");
        let ids = |messages: &tower_agent::message::Messages| -> Vec<_> {
            messages
                .iter()
                .map(|message| message.id().cloned())
                .collect()
        };
        assert_eq!(
            ids(&saved.checkpoint().messages),
            ids(&all),
            "round {round}"
        );
        let answers = waits
            .interrupts()
            .iter()
            .map(|open| tower_agent::Resolution::resolved(&open.id, json!({ "approved": true })));
        let next = next.with_resolutions(answers.collect::<Vec<_>>());
        waits = pays.run(next).await.unwrap();
    }
    assert_eq!(waits.text(), "Done.");
    let data = database.export("ada").await;
    // Each message of the last request once.
    assert_eq!(
        data.runs[0].messages.len(),
        6,
        "{:?}",
        data.runs[0].messages
    );
    assert_eq!(data.runs[0].end, None);
}

#[tokio::test]
async fn a_run_without_a_session_stores_each_message_once() {
    a_run_without_a_session(Sqlite::in_memory().await.unwrap()).await;
    if let Some(server) = Server::start("messages-own") {
        a_run_without_a_session(server.connect().await).await;
    }
}

/// A message that was changed in the database is not sent to a model.
#[tokio::test]
async fn a_changed_message_is_noticed() {
    let Some(server) = Server::start("messages-changed") else {
        return;
    };
    let database = server.connect().await;
    talk(&database, &database).await;
    server.query(
        "UPDATE tower_agent_conversation_entries SET entry = replace(entry, 'Turn 0', 'Turn 9')",
    );
    let refused = request_of(&database, run("run 1")).await.unwrap_err();
    assert!(
        matches!(refused, JournalError::Store(StoreError::Data(_))),
        "{refused}"
    );
}

/// A request that is read while the run goes on is one of those that the run had.
#[tokio::test]
async fn a_request_that_is_read_while_the_run_goes_on_is_whole() {
    let folder = Folder::new("messages-racing");
    let database = Sqlite::open(folder.file("agent.db")).await.unwrap();
    let agent = agent(&database);
    let first = agent.run(run("run 1").request("Turn 0.")).await.unwrap();
    let mut checkpoint = first.checkpoint();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let turns = async {
        for turn in 1..30 {
            let next = AgentRequest::resume(checkpoint.clone());
            let next = next.with_message(format!("Turn {turn}."));
            let response = agent.run(run("run 1").request(next)).await.unwrap();
            checkpoint = response.checkpoint();
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let reads = async {
        while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
            let texts = request_of(&database, run("run 1")).await.unwrap();
            let last = format!("Turn {}.", texts.len() / 2);
            assert_eq!(texts.last(), Some(&last), "{texts:?}");
        }
    };
    tokio::join!(turns, reads);
}
