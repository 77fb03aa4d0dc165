//! The contract of every store of sessions.

use std::time::{Duration, SystemTime};

use tower_agent_conversations::{
    Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore,
};

use tower_agent_durable::{Sqlite, StoreError};

use crate::support::server::Server;

#[tokio::test]
async fn sqlite_conforms() {
    conforms(&Sqlite::in_memory().await.unwrap()).await;
}

#[tokio::test]
async fn postgres_conforms() {
    if let Some(server) = Server::start("conformance") {
        a_server_conforms(server).await;
    }
}

#[tokio::test]
async fn postgres_behind_a_pooler_conforms() {
    if let Some(server) = Server::start_pooled("conformance-pooled") {
        a_server_conforms(server).await;
    }
}

async fn a_server_conforms(server: Server) {
    let database = server.connect().await;
    conforms(&database).await;
    database.close().await;
}

async fn conforms(store: &impl ConversationStore) {
    appended_messages_are_loaded(store).await;
    another_version_is_a_conflict_and_writes_nothing(store).await;
    entries_are_replaced_from_a_position_on(store).await;
    a_gap_is_an_error_and_writes_nothing(store).await;
    a_deleted_session_is_gone_and_its_version_never_comes_back(store).await;
    an_expired_session_does_not_exist(store).await;
    keys_are_exact(store).await;
    lists_have_pages_with_the_latest_first(store).await;
    lists_select_by_user_kind_and_waiting(store).await;
    texts_of_all_kinds_come_back_unchanged(store).await;
    ids_that_a_key_cannot_have_are_refused_in_words(store).await;
}

fn key(name: &str) -> ConversationKey {
    ConversationKey::new("conformance", "ada", name)
}

fn entries(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| format!("\"{text}\"")).collect()
}

fn append(head: &str, from: usize, texts: &[&str]) -> Append {
    Append::new(head, from).entries(entries(texts))
}

async fn appended_messages_are_loaded(store: &impl ConversationStore) {
    let key = key("loaded");
    assert_eq!(store.load(&key, 0).await.unwrap(), None);
    let first = store
        .append(&key, 0, append("1", 0, &["a", "b"]))
        .await
        .unwrap();
    assert!(first > 0);
    let second = store
        .append(&key, first, append("2", 2, &["c"]))
        .await
        .unwrap();
    let third = store
        .append(&key, second, append("3", 3, &[]))
        .await
        .unwrap();
    let session = store.load(&key, 0).await.unwrap().unwrap();
    assert_eq!((session.version, &*session.head), (third, "3"));
    assert_eq!(session.entries, entries(&["a", "b", "c"]));
}

async fn another_version_is_a_conflict_and_writes_nothing(store: &impl ConversationStore) {
    let key = key("conflict");
    let is_conflict = |result: Result<u64, StoreError>| result.unwrap_err().is_conflict();
    assert!(is_conflict(
        store.append(&key, 7, append("1", 0, &["a"])).await
    ));
    assert_eq!(store.load(&key, 0).await.unwrap(), None);
    let first = store.append(&key, 0, append("1", 0, &["a"])).await.unwrap();
    assert!(is_conflict(
        store.append(&key, 0, append("2", 0, &["b"])).await
    ));
    let second = store
        .append(&key, first, append("2", 1, &[]))
        .await
        .unwrap();
    assert!(is_conflict(
        store.append(&key, first, append("3", 0, &["b"])).await
    ));
    let session = store.load(&key, 0).await.unwrap().unwrap();
    assert_eq!((session.version, &*session.head), (second, "2"));
    assert_eq!(session.entries, entries(&["a"]));
}

async fn entries_are_replaced_from_a_position_on(store: &impl ConversationStore) {
    let key = key("replaced");
    let first = store
        .append(&key, 0, append("1", 0, &["a", "b", "c"]))
        .await
        .unwrap();
    let second = store
        .append(&key, first, append("2", 1, &["d"]))
        .await
        .unwrap();
    assert_eq!(
        store.load(&key, 0).await.unwrap().unwrap().entries,
        entries(&["a", "d"])
    );
    store
        .append(&key, second, append("3", 0, &["e", "f"]))
        .await
        .unwrap();
    assert_eq!(
        store.load(&key, 0).await.unwrap().unwrap().entries,
        entries(&["e", "f"])
    );
}

async fn a_gap_is_an_error_and_writes_nothing(store: &impl ConversationStore) {
    let key = key("gap");
    store
        .append(&key, 0, append("1", 1, &["a"]))
        .await
        .unwrap_err();
    assert_eq!(store.load(&key, 0).await.unwrap(), None);
    let first = store
        .append(&key, 0, append("1", 0, &["a", "b"]))
        .await
        .unwrap();
    // A replaced message is no entry.
    let second = store
        .append(&key, first, append("2", 1, &[]))
        .await
        .unwrap();
    store
        .append(&key, second, append("3", 2, &["c"]))
        .await
        .unwrap_err();
    let session = store.load(&key, 0).await.unwrap().unwrap();
    assert_eq!((session.version, &*session.head), (second, "2"));
    assert_eq!(session.entries, entries(&["a"]));
}

async fn a_deleted_session_is_gone_and_its_version_never_comes_back(
    store: &impl ConversationStore,
) {
    let key = key("deleted");
    let old = store.append(&key, 0, append("1", 0, &["a"])).await.unwrap();
    assert!(store.delete(&key).await.unwrap());
    assert!(!store.delete(&key).await.unwrap());
    assert_eq!(store.load(&key, 0).await.unwrap(), None);
    let new = store.append(&key, 0, append("2", 0, &["b"])).await.unwrap();
    assert_ne!(old, new);
    let late = store.append(&key, old, append("3", 1, &["c"])).await;
    assert!(late.unwrap_err().is_conflict());
    assert_eq!(
        store.load(&key, 0).await.unwrap().unwrap().entries,
        entries(&["b"])
    );
}

async fn an_expired_session_does_not_exist(store: &impl ConversationStore) {
    let key = key("expired");
    let past = Some(SystemTime::now() - Duration::from_secs(1));
    let future = Some(SystemTime::now() + Duration::from_secs(3600));
    let first = store
        .append(&key, 0, append("1", 0, &["a"]).expires_at(future))
        .await
        .unwrap();
    let listed = store
        .list(&ConversationQuery::new().app("conformance"))
        .await
        .unwrap();
    let listed = listed.into_iter().find(|listed| listed.key == key).unwrap();
    assert_eq!((listed.version, listed.expires_at.is_some()), (first, true));
    let second = store
        .append(&key, first, append("2", 1, &["b"]).expires_at(past))
        .await
        .unwrap();

    assert_eq!(store.load(&key, 0).await.unwrap(), None);
    let listed = store
        .list(&ConversationQuery::new().app("conformance"))
        .await
        .unwrap();
    assert!(listed.iter().all(|listed| listed.key != key));
    let late = store.append(&key, second, append("3", 2, &["c"])).await;
    assert!(late.unwrap_err().is_conflict());
    let again = store
        .append(&key, 0, append("4", 0, &["d"]).expires_at(past))
        .await
        .unwrap();
    assert_ne!(again, first);
    assert_eq!(store.delete_expired().await.unwrap(), 1);
    assert_eq!(store.delete_expired().await.unwrap(), 0);
    assert!(!store.delete(&key).await.unwrap());
}

async fn keys_are_exact(store: &impl ConversationStore) {
    let keys = ["b", "B", "b ", "b%", "b/c", "\u{e9}", "e\u{301}", ""];
    for (index, name) in keys.iter().enumerate() {
        store
            .append(&key(name), 0, append(&index.to_string(), 0, &[]))
            .await
            .unwrap();
    }
    for (index, name) in keys.iter().enumerate() {
        assert_eq!(
            store.load(&key(name), 0).await.unwrap().unwrap().head,
            index.to_string()
        );
    }
    let others = ConversationKey::new("conformance", "eve", "b");
    assert_eq!(store.load(&others, 0).await.unwrap(), None);
}

async fn lists_have_pages_with_the_latest_first(store: &impl ConversationStore) {
    let key = |user: &str, name: &str| ConversationKey::new("lists", user, name);
    let keys = [
        key("", "z"),
        key("B", "1"),
        key("a", "1"),
        key("a", "2"),
        key("b", "0"),
    ];
    for key in &keys {
        store.append(key, 0, append("1", 0, &[])).await.unwrap();
    }
    let mut query = ConversationQuery::new().app("lists").limit(2);
    let mut seen = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        query = query.after(last);
        seen.extend(page);
    }
    assert_eq!(seen.len(), keys.len());
    // Of one moment, in the order of their bytes.
    let order = |info: &ConversationInfo| (info.updated_at, info.key.clone());
    assert!(seen.iter().rev().map(order).is_sorted());
}

async fn lists_select_by_user_kind_and_waiting(store: &impl ConversationStore) {
    let key = |app: &str, user: &str, name: &str| ConversationKey::new(app, user, name);
    let appends = [
        (key("one", "sel", "1"), append("1", 0, &[])),
        (key("two", "sel", "2"), append("1", 0, &[]).kind("thread")),
        (key("two", "sel", "3"), append("1", 0, &[]).waiting(true)),
        (key("two", "other", "4"), append("1", 0, &[]).waiting(true)),
    ];
    for (key, append) in appends {
        store.append(&key, 0, append).await.unwrap();
    }
    let names = async |query: ConversationQuery| {
        let page = store.list(&query).await.unwrap();
        let names = page.into_iter().map(|info| info.key.id.to_string());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.concat()
    };
    assert_eq!(names(ConversationQuery::new().user("sel")).await, "123");
    assert_eq!(
        names(ConversationQuery::new().app("two").user("sel")).await,
        "23"
    );
    assert_eq!(
        names(ConversationQuery::new().user("sel").kind("thread")).await,
        "2"
    );
    assert_eq!(
        names(ConversationQuery::new().app("two").waiting()).await,
        "34"
    );

    // What waits is what the last write has said.
    let answered = key("two", "sel", "3");
    let version = store.load(&answered, 0).await.unwrap().unwrap().version;
    store
        .append(&answered, version, append("2", 0, &[]))
        .await
        .unwrap();
    assert_eq!(
        names(ConversationQuery::new().app("two").waiting()).await,
        "4"
    );
}

async fn texts_of_all_kinds_come_back_unchanged(store: &impl ConversationStore) {
    let texts = [
        "\"\"",
        "\"\\u0000\"",
        "\"'; DROP TABLE x; --\"",
        "\"\u{1f600}\"",
        "1e400",
        "null",
    ];
    let texts = texts.map(str::to_owned).to_vec();
    let append = Append::new("{\"a\": 1, \"a\": 2}", 0).entries(texts.clone());
    store.append(&key("texts"), 0, append).await.unwrap();
    let session = store.load(&key("texts"), 0).await.unwrap().unwrap();
    assert_eq!(
        (session.entries, &*session.head),
        (texts, "{\"a\": 1, \"a\": 2}")
    );
}

async fn ids_that_a_key_cannot_have_are_refused_in_words(store: &impl ConversationStore) {
    let long = "x".repeat(3_000);
    for key in [
        ConversationKey::new("shop", "ada", "a\0b"),
        ConversationKey::new("shop", "ada", &*long),
        ConversationKey::new("shop", &*long, "1"),
        ConversationKey::new(&*long, "ada", "1"),
    ] {
        let refused = store.append(&key, 0, append("1", 0, &["a"])).await;
        let Err(StoreError::Id { part, why }) = refused else {
            panic!("{refused:?}")
        };
        assert!(part.ends_with("of the conversation"), "{part} {why}");
        assert!(matches!(
            store.load(&key, 0).await,
            Err(StoreError::Id { .. })
        ));
        assert!(matches!(
            store.delete(&key).await,
            Err(StoreError::Id { .. })
        ));
    }
    let longest = ConversationKey::new("a".repeat(512), "u".repeat(512), "s".repeat(1_024));
    store
        .append(&longest, 0, append("1", 0, &["a"]))
        .await
        .unwrap();
    assert!(store.delete(&longest).await.unwrap());
    let query = ConversationQuery::new().user("a\0b");
    assert!(matches!(
        store.list(&query).await,
        Err(StoreError::Id { .. })
    ));
}
