//! Export and deletion of everything that a database has of one user.

use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, AgentRequest};
use tower_agent_agui::AgUi;
use tower_agent_durable::journal::{RunKey, RunQuery};
use tower_agent_durable::{
    SessionKey, SessionLayer, SessionQuery, SessionStore, SessionThreads, Sqlite,
};

use crate::support::folder::Folder;
use crate::support::saying;

/// An agent whose runs are durable.
fn agent(store: &Sqlite) -> Agent {
    crate::support::durable(saying("Hello."), store.clone())
        .build()
        .unwrap()
}

/// Runs the agent in a session and in a thread of this user, and once for nobody.
async fn runs_of(store: &Sqlite, user: &str) {
    let sessions = SessionLayer::new(store.clone()).layer(agent(store));
    let request = SessionKey::new("shop", user, "1").request("In a session.");
    let request = request.with_run_id(format!("{user} 1"));
    sessions.oneshot(request).await.unwrap();

    let server = AgUi::builder(agent(store)).threads(SessionThreads::new(store.clone()));
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
    assert_eq!(store.list(&SessionQuery::new()).await.unwrap().len(), 2);
    assert_eq!(store.runs().list(&RunQuery::new()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_data_of_nobody_is_not_that_of_an_empty_name() {
    let store = Sqlite::in_memory().await.unwrap();
    let nobodys = SessionKey::new("shop", "", "1").request("For nobody.");
    let sessions = SessionLayer::new(store.clone()).layer(agent(&store));
    sessions.oneshot(nobodys).await.unwrap();
    assert!(store.delete_user("").await.is_err());
    assert!(store.export_user("").await.is_err());
    assert_eq!(store.list(&SessionQuery::new()).await.unwrap().len(), 1);
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
            let asks = SessionKey::new("shop", user, "1").request(asks);
            sessions.clone().oneshot(asks).await.unwrap();
        }
    }
    assert!(is_on_disk(&folder, "the secret of ann"));
    store.delete_user("ann").await.unwrap();
    assert!(!is_on_disk(&folder, "the secret of ann"));
    assert!(is_on_disk(&folder, "the secret of bob"));

    // By other ways.
    let key = SessionKey::new("shop", "bob", "1");
    store.delete(&key).await.unwrap();
    let runs = store.runs();
    runs.delete(RunKey::new("run 0").of("bob")).await.unwrap();
    runs.delete_ended(SystemTime::now() + Duration::from_secs(60))
        .await
        .unwrap();
    assert!(!is_on_disk(&folder, "the secret of bob"));
}
