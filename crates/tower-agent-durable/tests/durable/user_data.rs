//! Export and deletion of everything that a database has of one user.

use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, AgentRequest};
use tower_agent_agui::AgUi;
use tower_agent_conversations::{
    ConversationKey, ConversationQuery, ConversationStore, SessionLayer,
};
use tower_agent_durable::journal::{RunKey, RunQuery};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::redact::{Detector, Redact};

use crate::support::folder::Folder;
use crate::support::server::Server;
use crate::support::{Count, calling, saying, waiting};

/// An agent whose runs are durable.
fn agent(store: &Sqlite) -> Agent {
    crate::support::durable(saying("Hello."), store.clone())
        .build()
        .unwrap()
}

/// Runs the agent in a session and in a thread of this user, and once for nobody.
async fn runs_of(store: &Sqlite, user: &str) {
    let sessions = SessionLayer::new(store.clone()).layer(agent(store));
    let request = ConversationKey::new("shop", user, "1").request("In a session.");
    let request = request.with_run_id(format!("{user} 1"));
    sessions.oneshot(request).await.unwrap();

    let server = AgUi::builder(agent(store)).threads(store.clone());
    let message = json!({ "id": "m", "role": "user", "content": "In a thread." });
    let input = json!({ "threadId": "t", "runId": "r", "messages": [message] });
    let input = serde_json::from_value(input).unwrap();
    let run = server.build().run_for(user, input).await.unwrap();
    drop(run.collect::<Vec<_>>().await);
}

#[tokio::test]
async fn the_export_of_a_user_has_sessions_threads_and_runs() {
    let store = Sqlite::in_memory().await.unwrap();
    runs_of(&store, "ann").await;
    runs_of(&store, "bob").await;

    let data = store.export_user("ann").await.unwrap();
    let kinds: Vec<&str> = data.sessions.iter().map(|one| &*one.kind).collect();
    assert_eq!(kinds, ["thread", "session"]);
    assert_eq!(data.runs.len(), 2, "{:?}", data.runs);
    let text = serde_json::to_string(&data).unwrap();
    assert!(
        text.contains("In a session.") && text.contains("In a thread."),
        "{text}"
    );
    assert!(!text.contains("bob"), "{text}");
}

#[tokio::test]
async fn a_deleted_user_leaves_nothing_and_others_keep_their_data() {
    let store = Sqlite::in_memory().await.unwrap();
    runs_of(&store, "ann").await;
    runs_of(&store, "bob").await;
    let nobodys = AgentRequest::new("For nobody.").with_run_id("nobody");
    agent(&store).run(nobodys).await.unwrap();

    assert_eq!(store.delete_user("ann").await.unwrap(), 4);
    let data = store.export_user("ann").await.unwrap();
    assert!(data.sessions.is_empty() && data.runs.is_empty());
    assert_eq!(store.delete_user("ann").await.unwrap(), 0);
    assert_eq!(
        store.list(&ConversationQuery::new()).await.unwrap().len(),
        2
    );
    assert_eq!(store.runs().list(&RunQuery::new()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_data_of_nobody_is_not_that_of_an_empty_name() {
    let store = Sqlite::in_memory().await.unwrap();
    let nobodys = ConversationKey::new("shop", "", "1").request("For nobody.");
    let sessions = SessionLayer::new(store.clone()).layer(agent(&store));
    sessions.oneshot(nobodys).await.unwrap();
    assert!(store.delete_user("").await.is_err());
    assert!(store.export_user("").await.is_err());
    assert_eq!(
        store.list(&ConversationQuery::new()).await.unwrap().len(),
        1
    );
}

/// Returns whether the text is in a file of the folder.
fn is_on_disk(folder: &Folder, text: &str) -> bool {
    std::fs::read_dir(folder.file("")).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[tokio::test]
async fn no_byte_of_a_deleted_user_is_left_in_the_files() {
    let folder = Folder::new("deleted-user");
    let store = Sqlite::open(folder.file("agent.db")).await.unwrap();
    // Longer than a page.
    let secret = |user: &str| format!("the secret of {user}, ").repeat(500);
    for user in ["ann", "bob"] {
        let sessions = SessionLayer::new(store.clone()).layer(agent(&store));
        for number in 0..3 {
            let asks = AgentRequest::new(secret(user)).with_run_id(format!("run {number}"));
            let asks = ConversationKey::new("shop", user, "1").request(asks);
            sessions.clone().oneshot(asks).await.unwrap();
        }
    }
    assert!(is_on_disk(&folder, "the secret of ann"));
    store.delete_user("ann").await.unwrap();
    assert!(!is_on_disk(&folder, "the secret of ann"));
    assert!(is_on_disk(&folder, "the secret of bob"));

    // By other ways.
    let key = ConversationKey::new("shop", "bob", "1");
    store.delete(&key).await.unwrap();
    let runs = store.runs();
    runs.delete(RunKey::new("run 0").of("bob")).await.unwrap();
    runs.delete_ended(SystemTime::now() + Duration::from_secs(60))
        .await
        .unwrap();
    assert!(!is_on_disk(&folder, "the secret of bob"));
}

/// Not only sessions and runs that ended well: one that waits, one that failed, one whose process
/// was lost, a thread, and texts that were redacted.
#[tokio::test]
async fn no_byte_of_a_deleted_user_is_left_in_the_tables_of_a_server() {
    let Some(server) = Server::start("deleted-user-server") else {
        return;
    };
    let store = server.connect().await;
    for user in ["ann", "bob"] {
        let marker = format!("{user}@marker.example");
        let redact = Redact::new([Detector::email()]).unwrap().redact_input();
        let agent = crate::support::durable(saying("Hello."), store.clone())
            .callbacks(redact)
            .build()
            .unwrap();
        let sessions = SessionLayer::new(store.clone()).layer(agent.clone());
        for turn in 0..3 {
            let request = AgentRequest::new(format!("{turn}: {}", marker.repeat(300)));
            let request = request.with_run_id(format!("run {turn}"));
            let request = ConversationKey::new("shop", user, "1").request(request);
            sessions.clone().oneshot(request).await.unwrap();
        }
        let server = AgUi::builder(agent).threads(store.clone());
        let message = json!({ "id": "m", "role": "user", "content": marker });
        let input = json!({ "threadId": "t", "runId": "r", "messages": [message] });
        let input = serde_json::from_value(input).unwrap();
        let run = server.build().run_for(user, input).await.unwrap();
        drop(run.collect::<Vec<_>>().await);

        // One that waits for an operator, with what it has found.
        let calls = Count::default();
        let (tool, _notify, has_begun) = waiting(&calls);
        let pays = crate::support::durable(calling(&["pay"], &calls), store.clone()).tool(tool);
        let pays = pays.build().unwrap();
        let key = RunKey::new("run 9").of(user);
        let lost = pays.run(key.request(format!("Pay {marker}.")));
        tokio::select! {
            _ = lost => unreachable!("the tool waits"),
            begun = has_begun => begun.unwrap(),
        }
        let next = store.runs().request(&key).await.unwrap();
        assert_eq!(pays.run(next).await.unwrap().interrupts().len(), 1);
    }
    let found = |text: &str| {
        let tables = server.query(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'tower_agent_%'",
        );
        let found = tables.lines().filter(|table| {
            let count = format!("SELECT count(*) FROM {table} AS t WHERE t::TEXT LIKE '%{text}%'");
            server.query(&count) != "0"
        });
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(found("ann@marker").len() >= 2, "{:?}", found("ann@marker"));
    assert_eq!(store.delete_user("ann").await.unwrap(), 7);
    assert_eq!(found("ann"), Vec::<String>::new());
    assert!(found("bob@marker").len() >= 2);
}
