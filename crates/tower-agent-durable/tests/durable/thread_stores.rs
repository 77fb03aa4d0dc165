//! The contract of every store of threads, as the servers over it see it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::message::{Part, Role, ToolCall};
use tower_agent::{Agent, Message, ModelRequest, ModelResponse, Tool};
use tower_agent_agui::AgUi;
use tower_agent_conversations::{
    ConversationKey, ConversationQuery, ConversationStore, MemoryConversations, Thread,
};
use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::server::Server;

#[tokio::test]
async fn memory_conforms() {
    conforms(MemoryConversations::new()).await;
}

#[tokio::test]
async fn sqlite_conforms() {
    conforms(Sqlite::in_memory().await.unwrap()).await;
}

#[tokio::test]
async fn postgres_conforms() {
    if let Some(server) = Server::start("thread-stores") {
        a_server_conforms(server).await;
    }
}

#[tokio::test]
async fn postgres_behind_a_pooler_conforms() {
    if let Some(server) = Server::start_pooled("thread-stores-pooled") {
        a_server_conforms(server).await;
    }
}

async fn a_server_conforms(server: Server) {
    let database = server.connect().await;
    conforms(database.clone()).await;
    database.close().await;
}

async fn conforms(store: impl ConversationStore) {
    let store = Arc::new(store);
    a_list_has_pages_with_the_latest_first(&store).await;
    a_list_selects_by_server_principal_and_waiting(&store).await;
    a_stored_thread_can_be_read(&store).await;
    a_deleted_thread_is_unknown_and_its_run_saves_nothing(&store).await;
    a_run_of_a_deleted_thread_does_not_write_to_the_next_one(&store).await;
    all_threads_of_a_principal_are_deleted_in_one_call(&store).await;
}

/// A server whose agent asks before it pays, and answers everything else.
fn server(store: &Arc<impl ConversationStore>, name: &str) -> AgUi {
    let model = ScriptedModel::always(Turn::function(|request: &ModelRequest| {
        let last = request.messages().last().map(Message::text);
        let call = Part::ToolCall(ToolCall::new("call_1", "pay", json!({ "cents": 5 })));
        let message = match last.as_deref() {
            Some("Pay.") => Message::new(Role::Assistant, [call]),
            _ => Message::assistant("Hello."),
        };
        Ok(ModelResponse::new(message))
    }));
    let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    let agent = Agent::builder(model)
        .tool(pay)
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    AgUi::builder(agent)
        .name(name)
        .threads(store.clone())
        .allow_partial_history()
        .build()
}

fn input(thread: &str, run: &str, text: &str) -> Value {
    let message = json!({ "id": format!("{run}-m"), "role": "user", "content": text });
    json!({
        "threadId": thread, "runId": run, "messages": [message], "state": { "page": run },
    })
}

/// Returns the events of a run.
async fn post(server: &AgUi, principal: &str, input: Value) -> Vec<Value> {
    let input = serde_json::from_value(input).unwrap();
    let run = server.run_for(principal, input).await.unwrap();
    run.map(|event| serde_json::to_value(event).unwrap())
        .collect()
        .await
}

fn key(server: &str, principal: &str, thread: &str) -> ConversationKey {
    ConversationKey::new(server, principal, thread)
}

async fn names(store: &impl ConversationStore, query: ConversationQuery) -> String {
    let page = store.list(&query).await.unwrap();
    let names = page.into_iter().map(|info| info.key.id.to_string());
    names.collect::<Vec<_>>().concat()
}

async fn a_list_has_pages_with_the_latest_first(store: &Arc<impl ConversationStore>) {
    let server = server(store, "pages");
    for thread in ["a", "b", "c", "d", "e"] {
        post(&server, "ann", input(thread, thread, "Hi.")).await;
        // Threads of one moment are in the order of their keys.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    post(&server, "ann", input("b", "again", "Hi.")).await;

    let mut query = ConversationQuery::new().app("pages").limit(2);
    let mut seen = String::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        query = query.after(last);
        seen.extend(page.iter().map(|info| &*info.key.id));
    }
    assert_eq!(seen, "bedca");
}

async fn a_list_selects_by_server_principal_and_waiting(store: &Arc<impl ConversationStore>) {
    let one = server(store, "one");
    let two = server(store, "two");
    post(&one, "bob", input("1", "r", "Hi.")).await;
    post(&two, "bob", input("2", "r", "Pay.")).await;
    post(&two, "eve", input("3", "r", "Pay.")).await;

    let query = ConversationQuery::new().user("bob");
    assert_eq!(names(store, query.clone()).await.len(), 2);
    assert_eq!(names(store, query.clone().app("one")).await, "1");
    assert_eq!(names(store, query.clone().waiting()).await, "2");
    assert_eq!(
        names(store, ConversationQuery::new().app("two").waiting())
            .await
            .len(),
        2
    );

    // A new message closes the question.
    post(&two, "bob", input("2", "r2", "Hi.")).await;
    assert_eq!(names(store, query.waiting()).await, "");
}

async fn a_stored_thread_can_be_read(store: &Arc<impl ConversationStore>) {
    let before = SystemTime::now() - Duration::from_secs(1);
    let server = server(store, "read");
    post(&server, "ann", input("t", "r1", "Hi.")).await;
    let events = post(&server, "ann", input("t", "r2", "Pay.")).await;

    let thread = Thread::load(store, &key("read", "ann", "t")).await;
    let thread = thread.unwrap().unwrap();
    let messages = thread.messages();
    let texts: Vec<String> = messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["Hi.", "Hello.", "Pay.", ""]);
    assert_eq!(Value::from(thread.state().clone()), json!({ "page": "r2" }));
    let questions: Vec<_> = thread.interrupts().collect();
    let [(id, interrupt)] = questions[..] else {
        panic!("{questions:?}");
    };
    let told = &events.last().unwrap()["outcome"]["interrupts"][0];
    assert_eq!(told["id"], **id);
    assert_eq!(interrupt.payload["tool"], "pay");
    assert!(thread.updated_at() > before && !thread.is_running());
    let unknown = key("read", "eve", "t");
    assert!(store.load(&unknown, 0).await.unwrap().is_none());
}

async fn a_deleted_thread_is_unknown_and_its_run_saves_nothing(
    store: &Arc<impl ConversationStore>,
) {
    let server = server(store, "deleted");
    let key = key("deleted", "ann", "t");
    post(&server, "ann", input("t", "r1", "Hi.")).await;
    let input = serde_json::from_value(input("t", "r2", "Hi.")).unwrap();
    let run = server.run_for("ann", input).await.unwrap();
    assert!(store.delete(&key).await.unwrap());
    assert!(!store.delete(&key).await.unwrap());

    let events: Vec<_> = run.collect().await;
    let last = serde_json::to_value(events.last().unwrap()).unwrap();
    assert_eq!(last["code"], "thread_store", "{last}");
    assert!(store.load(&key, 0).await.unwrap().is_none());
    assert_eq!(
        names(store, ConversationQuery::new().app("deleted")).await,
        ""
    );
}

async fn a_run_of_a_deleted_thread_does_not_write_to_the_next_one(
    store: &Arc<impl ConversationStore>,
) {
    let server = server(store, "next");
    let key = key("next", "ann", "t");
    let start = async |run: &str| {
        let input = serde_json::from_value(input("t", run, "Hi.")).unwrap();
        server.run_for("ann", input).await.unwrap()
    };
    let old = start("old").await;
    store.delete(&key).await.unwrap();
    // Saved as often as the old one.
    let new = start("new").await;
    drop(old.collect::<Vec<_>>().await);
    drop(new.collect::<Vec<_>>().await);
    let thread = Thread::load(store, &key).await.unwrap().unwrap();
    assert_eq!(thread.state()["page"], "new");
}

async fn all_threads_of_a_principal_are_deleted_in_one_call(store: &Arc<impl ConversationStore>) {
    for name in ["all 1", "all 2"] {
        let server = server(store, name);
        post(&server, "una", input("1", "r", "Hi.")).await;
        post(&server, "una", input("2", "r", "Pay.")).await;
        post(&server, "uno", input("1", "r", "Hi.")).await;
    }
    assert_eq!(store.delete_of_user("una").await.unwrap(), 4);
    assert_eq!(names(store, ConversationQuery::new().user("una")).await, "");
    assert_eq!(
        names(store, ConversationQuery::new().user("uno")).await,
        "11"
    );
}
