//! The threads of an AG-UI server, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower_agent::{Agent, Resolution, Tool};
use tower_agent_agui::{AgUi, Event, RunAgentInput};
use tower_agent_conversations::{ConversationKey, ConversationQuery, ConversationStore, Roles};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::Approval;

use crate::memory::Memory;
use crate::support::folder::Folder;

/// A server process: its database and its socket.
struct Served {
    address: SocketAddr,
    store: Sqlite,
    task: JoinHandle<()>,
}

impl Served {
    async fn start(folder: &Folder, agent: Agent) -> Self {
        let store = Sqlite::open(folder.file("a.db")).await.unwrap();
        let threads = store.clone();
        let server = AgUi::builder(agent)
            .name("shop")
            .threads(threads)
            .allow_partial_history();
        let app = Router::new().route_service("/agent", server.build());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            store,
            task,
        }
    }

    async fn stop(self) {
        self.task.abort();
        self.store.close().await;
    }

    /// Posts an input, and returns the events of its run.
    async fn post(&self, input: Value) -> Vec<Value> {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("/agent").header("host", "localhost");
        let request = request.header("content-type", "application/json");
        let body = Full::new(Bytes::from(input.to_string()));
        let response = sender
            .send_request(request.body(body).unwrap())
            .await
            .unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(status, 200, "{text}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

fn says(run: &str, id: &str, text: &str) -> Value {
    let message = json!({ "id": id, "role": "user", "content": text });
    json!({ "threadId": "t", "runId": run, "messages": [message] })
}

fn last(model: &ScriptedModel) -> Vec<String> {
    model
        .requests()
        .last()
        .unwrap()
        .messages()
        .iter()
        .map(|message| message.text())
        .collect()
}

#[tokio::test]
async fn a_client_that_sends_only_its_new_message_goes_on_after_a_restart() {
    let folder = Folder::new("threads");
    let agent = |model: &ScriptedModel| Agent::builder(model.clone()).build().unwrap();
    let model = ScriptedModel::new([Turn::from_text("Hello, Ada."), Turn::from_text("Ada.")]);
    let first = Served::start(&folder, agent(&model)).await;
    first.post(says("r1", "m1", "I am Ada.")).await;
    first.stop().await;

    let second = Served::start(&folder, agent(&model)).await;
    second.post(says("r2", "m2", "Who am I?")).await;
    assert_eq!(last(&model), ["I am Ada.", "Hello, Ada.", "Who am I?"]);
    second.stop().await;
}

#[tokio::test]
async fn a_question_is_answered_after_a_restart_once() {
    let folder = Folder::new("threads-question");
    let paid = Arc::new(AtomicU32::new(0));
    let agent = |turns: Vec<Turn>| {
        let paid = paid.clone();
        let pay = Tool::function("pay", "Pays.", move |_: Value| {
            paid.fetch_add(1, Ordering::SeqCst);
            "paid"
        });
        let agent = Agent::builder(ScriptedModel::new(turns)).tool(pay);
        agent.on_tool(Approval::of_tools(["pay"])).build().unwrap()
    };
    let first = Served::start(&folder, agent(vec![Turn::tool("pay", json!({}))])).await;
    let events = first.post(says("r1", "m1", "Pay.")).await;
    let question = &events.last().unwrap()["outcome"]["interrupts"][0]["id"];
    assert!(question.is_string(), "{events:?}");
    first.stop().await;

    let second = Served::start(&folder, agent(vec![Turn::from_text("Paid.")])).await;
    let payload = json!({ "approved": true });
    let yes = json!({ "interruptId": question, "status": "resolved", "payload": payload });
    let yes = json!({ "threadId": "t", "runId": "r2", "messages": [], "resume": [yes] });
    let events = second.post(yes).await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED", "{events:?}");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    second.stop().await;
}

#[tokio::test]
async fn each_message_of_a_thread_is_written_once() {
    let store = Memory::default();
    let turns = (0..20).flat_map(|_| [Turn::tool("look", json!({})), Turn::from_text("Seen.")]);
    let look = Tool::function("look", "Looks.", |_: Value| "a lot");
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(look)
        .build()
        .unwrap();
    let threads = store.clone();
    let server = AgUi::builder(agent)
        .threads(threads)
        .allow_partial_history()
        .build();
    for turn in 0..20 {
        let input = says(&format!("r{turn}"), &format!("m{turn}"), "Look.");
        let run = server
            .run(serde_json::from_value(input).unwrap())
            .await
            .unwrap();
        let events: Vec<_> = futures::StreamExt::collect(run).await;
        assert!(!events.is_empty());
    }
    let key = ConversationKey::new("", "", "t");
    let entries = store.load(&key, 0).await.unwrap().unwrap().entries.len();
    // Four messages, and the run.
    assert_eq!(entries, 5 * 20);
    let inner = store.inner();
    let written: usize = inner
        .appends
        .iter()
        .map(|append| append.entries.len())
        .sum();
    assert!(
        written <= entries + 20,
        "{written} entries were written for {entries}"
    );
    // One for each request, and none before a write.
    assert_eq!(inner.loads - 1, 20);
}

#[tokio::test]
async fn an_approver_answers_in_another_process_and_the_customer_reads_it_in_a_third() {
    let (folder, paid) = (Folder::new("threads-approver"), Arc::new(AtomicU32::new(0)));
    let server = async |turns: &[Turn]| {
        let paid = paid.clone();
        let pay = Tool::function("pay", "Pays.", move |cents: u32| {
            paid.fetch_add(cents, Ordering::SeqCst);
            "paid"
        });
        let agent = Agent::builder(ScriptedModel::new(turns.to_vec()))
            .tool(pay)
            .on_tool(Approval::of_tools(["pay"]).by_role("support"))
            .build()
            .unwrap();
        let store = Sqlite::open(folder.file("a.db")).await.unwrap();
        let threads = store.clone();
        let server = AgUi::builder(agent).threads(threads);
        (server.allow_partial_history().build(), store)
    };
    let input = |run: &str, text: &str| {
        let message = json!({ "id": run, "role": "user", "content": text });
        let input = json!({ "threadId": "t", "runId": run, "messages": [message] });
        serde_json::from_value::<RunAgentInput>(input).unwrap()
    };

    let (first, store) = server(&[Turn::tool("pay", json!({ "value": 7 }))]).await;
    let run = first.run_for("ada", input("r1", "Pay me.")).await.unwrap();
    drop(run.collect::<Vec<Event>>().await);
    store.close().await;

    let (second, store) = server(&[Turn::from_text("You have 7.")]).await;
    let support = Roles::new(["support"]);
    let mut page = second
        .questions(&ConversationQuery::new(), &support)
        .await
        .unwrap();
    let question = page.questions.remove(0);
    let answer = Resolution::resolved(&*question.id, json!({ "approved": true }));
    let run = second.answer(question.key, support.clone(), answer);
    drop(run.await.unwrap().collect::<Vec<Event>>().await);
    assert_eq!(paid.load(Ordering::SeqCst), 7);
    store.close().await;

    let (third, store) = server(&[Turn::from_text("Bye.")]).await;
    let page = third
        .questions(&ConversationQuery::new(), &support)
        .await
        .unwrap();
    assert!(page.questions.is_empty());
    let run = third.run_for("ada", input("r2", "Thanks.")).await.unwrap();
    let events: Vec<Event> = run.collect().await;
    let events = serde_json::to_string(&events).unwrap();
    let [result, words] = ["paid", "You have 7."].map(|text| events.find(text));
    assert!(result.is_some() && result < words, "{events}");
    assert_eq!(paid.load(Ordering::SeqCst), 7);
    store.close().await;
}

#[tokio::test]
async fn a_thread_that_is_read_during_its_run_is_stored_as_the_run_has_ended() {
    let store = Sqlite::in_memory().await.unwrap();
    let look = Tool::function("look", "Looks.", |_: Value| "seen");
    let turns = [Turn::tool("look", json!({})), Turn::from_text("Done.")];
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(look);
    let server = AgUi::builder(agent.build().unwrap()).threads(store.clone());
    let server = server.build();
    let key = ConversationKey::new("", "", "t");
    let input = RunAgentInput::new("t", "r1", [tower_agent_agui::Message::user("m1", "Look.")]);
    let mut run = server.run(input).await.unwrap();
    while run.next().await.is_some() {
        server.show(key.clone(), Roles::default()).await.unwrap();
    }
    drop(run);
    // As another process reads it.
    let stored = store.load(&key, 0).await.unwrap().unwrap();
    let entries = stored.entries.iter();
    let entries: Vec<Value> = entries
        .map(|entry| serde_json::from_str(entry).unwrap())
        .collect();
    // Beside the run's own.
    let messages = entries.iter().filter(|entry| entry.is_object());
    let shown: Vec<_> = messages.map(|entry| &entry["shown"]).collect();
    assert_eq!(shown, ["Whole"; 4], "{entries:?}");
}
