//! Two writers of one session.

use std::sync::Arc;

use tower_agent_conversations::{Append, ConversationKey, ConversationStore};

use tower_agent_durable::Sqlite;

use crate::support::folder::Folder;
use crate::support::server::Server;

const ROUNDS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_a_file_lose_nothing_in_1000_rounds() {
    let folder = Folder::new("writers");
    // As two processes would.
    let one = Sqlite::open(folder.file("a.db")).await.unwrap();
    let other = Sqlite::open(folder.file("a.db")).await.unwrap();
    two_writers_lose_nothing(one, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_a_server_lose_nothing_in_1000_rounds() {
    let Some(server) = Server::start("writers-server") else {
        return;
    };
    two_writers_lose_nothing(server.connect().await, server.connect().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_behind_a_pooler_lose_nothing_in_1000_rounds() {
    let Some(server) = Server::start_pooled("writers-pooled") else {
        return;
    };
    two_writers_lose_nothing(server.connect().await, server.connect().await).await;
}

async fn two_writers_lose_nothing<S: ConversationStore>(one: S, other: S) {
    let (one, other) = (Arc::new(one), Arc::new(other));
    let write = |store: Arc<S>, name: usize| async move {
        let mut conflicts = 0;
        for round in 0..ROUNDS / 2 {
            conflicts += append_pair(&*store, name, round).await;
        }
        conflicts
    };
    let (first, second) = tokio::join!(
        tokio::spawn(write(one.clone(), 0)),
        tokio::spawn(write(other.clone(), 1))
    );
    assert!(
        first.unwrap() + second.unwrap() > 0,
        "the writers never met"
    );

    let session = one.load(&key(), 0).await.unwrap().unwrap();
    assert_eq!(session.entries.len(), 2 * ROUNDS);
    let mut next = [0, 0];
    for pair in session.entries.chunks(2) {
        let [call, result] = pair else {
            panic!("a pair is torn: {pair:?}")
        };
        let name = usize::from(call.starts_with("\"call 1"));
        assert_eq!(*call, format!("\"call {name} {}\"", next[name]));
        assert_eq!(*result, format!("\"result {name} {}\"", next[name]));
        next[name] += 1;
    }
    assert_eq!(next, [ROUNDS / 2, ROUNDS / 2]);
}

/// Appends two entries that belong together; returns the number of conflicts on the way.
async fn append_pair(store: &impl ConversationStore, name: usize, round: usize) -> usize {
    let mut conflicts = 0;
    loop {
        let session = store.load(&key(), 0).await.unwrap().unwrap_or_default();
        let pair = vec![
            format!("\"call {name} {round}\""),
            format!("\"result {name} {round}\""),
        ];
        let append = Append::new("{}", session.entries.len()).entries(pair);
        match store.append(&key(), session.version, append).await {
            Ok(_) => return conflicts,
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
        conflicts += 1;
    }
}

fn key() -> ConversationKey {
    ConversationKey::new("writers", "", "1")
}
