//! Stored data: its form, and how much of it is written.

use std::sync::Arc;

use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, ErrorKind, Message, Request, Tool, ToolRequest};
use tower_agent_conversations::{
    Append, ConversationKey, ConversationStore, Session, SessionLayer,
};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::{Sqlite, StoreError};
use tower_agent_middleware::redact::{Detector, Redact};

use crate::memory::Memory;

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

fn says(text: &str) -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text(text)))
        .build()
        .unwrap()
}

/// A session as the first format has it.
const FIRST_FORMAT: (&str, &str) = (
    r#"{
        "kind": "session",
        "format": 1,
        "writer": "6e1a",
        "entries": "07c4",
        "body": {
            "checkpoint": { "version": 1, "interrupts": [], "turn": 1, "private_state": { "a": 1 } },
            "state": { "theme": "dark" }
        }
    }"#,
    r#"{ "role": "user", "parts": [{ "type": "text", "text": "I am Ada." }] }"#,
);

#[tokio::test]
async fn the_first_format_is_read() {
    let (head, entry) = FIRST_FORMAT;
    let store = Memory::default();
    let append = Append::new(head, 0).entries(vec![entry.to_owned()]);
    store.append(&key(), 0, append).await.unwrap();
    let session = Session::load(&store, &key()).await.unwrap().unwrap();
    assert_eq!(session.checkpoint.messages[0], Message::user("I am Ada."));
    assert_eq!(
        (
            session.checkpoint.head.turn,
            session.state["theme"].as_str()
        ),
        (1, Some("dark"))
    );
    let response = SessionLayer::new(store).layer(says("Hello, Ada."));
    let response = response.oneshot(key().request("Hi.")).await.unwrap();
    assert_eq!(
        (response.messages().len(), response.checkpoint().head.turn),
        (3, 2)
    );
}

#[tokio::test]
async fn a_newer_format_and_another_kind_are_errors_and_are_left_alone() {
    for (field, value, why) in [
        (
            "format",
            json!(2),
            "format 2, but this version reads up to 1",
        ),
        ("kind", json!("thread"), "the key holds a thread"),
    ] {
        let mut head: Value = serde_json::from_str(FIRST_FORMAT.0).unwrap();
        head[field] = value;
        let store = Memory::default();
        store
            .append(&key(), 0, Append::new(head.to_string(), 0))
            .await
            .unwrap();
        let error = SessionLayer::new(store.clone()).layer(says(""));
        let error = error.oneshot(key().request("Hi.")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.to_string().contains(why), "{error}");
        assert!(error.downcast_ref::<StoreError>().is_some());
        assert_eq!(store.inner().appends.len(), 1);
    }
}

#[tokio::test]
async fn a_run_of_a_long_session_writes_what_is_new_and_loads_once() {
    let mut written = Vec::new();
    for length in [10, 10_000] {
        let store = Memory::default();
        let message = |index: usize| match index % 2 {
            0 => Message::user(format!("{index:05}")).with_id(format!("m{index:05}")),
            _ => Message::assistant(format!("{index:05}")).with_id(format!("m{index:05}")),
        };
        let entries = (0..length).map(|index| serde_json::to_string(&message(index)).unwrap());
        let append = Append::new(FIRST_FORMAT.0, 0).entries(entries.collect());
        store.append(&key(), 0, append).await.unwrap();
        store.inner().appends.clear();
        let agent = SessionLayer::new(store.clone()).layer(says("Hello."));
        let response = agent.oneshot(key().request("Hi.")).await.unwrap();
        assert_eq!(response.messages().len(), length + 2);
        let inner = store.inner();
        assert_eq!(inner.loads, 1);
        let sizes = inner.appends.iter().map(|append| {
            let bytes = append.entries.iter().map(String::len).sum::<usize>();
            (append.entries.len(), bytes)
        });
        written.push(sizes.collect::<Vec<_>>());
        // The head has a number that counts the messages.
        assert!(inner.appends.iter().all(|append| append.head.len() < 400));
    }
    for ((entries, bytes), (of_long, bytes_of_long)) in written[0].iter().zip(&written[1]) {
        assert_eq!((*entries, *of_long), (1, 1));
        // The message's id has its number, with up to three digits more.
        assert!(bytes.abs_diff(*bytes_of_long) <= 3, "{written:?}");
    }
}

#[tokio::test]
async fn the_originals_of_placeholders_come_back() {
    let store = Arc::new(Sqlite::in_memory().await.unwrap());
    let model = ScriptedModel::new([
        Turn::from_text("Noted."),
        Turn::from_text("It is still <EMAIL_1>."),
    ]);
    let redact = Redact::new([Detector::email()])
        .unwrap()
        .redact_input()
        .numbered();
    let agent = Agent::builder(model.clone())
        .callbacks(redact)
        .build()
        .unwrap();
    let agent = SessionLayer::new(store.clone()).layer(agent);
    agent
        .clone()
        .oneshot(key().request("I am ada@example.org."))
        .await
        .unwrap();
    agent
        .oneshot(key().request("And still ada@example.org."))
        .await
        .unwrap();
    let seen: Vec<_> = model
        .requests()
        .iter()
        .map(|request| request.messages().last().unwrap().text())
        .collect();
    assert!(seen.iter().all(|text| !text.contains("ada@")), "{seen:?}");
    let number = |text: &str| text.chars().find(char::is_ascii_digit);
    assert_eq!(number(&seen[0]), number(&seen[1]));
    // The session has what the caller sees.
    let session = Session::load(&*store, &key()).await.unwrap().unwrap();
    assert_eq!(
        session.checkpoint.messages[0].text(),
        "I am ada@example.org."
    );
}

/// A tool keeps what another server has answered.
#[tokio::test]
async fn json_too_deep_to_be_read_again_fails_its_turn_and_leaves_the_session_readable() {
    for levels in [120, 124, 125, 126, 127, 500] {
        let store = Memory::default();
        let deep = (1..levels).fold(json!([]), |inner, _| json!([inner]));
        let keep = Tool::function_with("keep", "Keeps.", move |_: Value, request: ToolRequest| {
            request.context().state().set("answer", deep.clone());
            "kept"
        });
        let model = ScriptedModel::new([Turn::tool("keep", json!({})), Turn::from_text("Kept.")]);
        let agent = Agent::builder(model).tool(keep).build().unwrap();
        // A run that could not be stored has the session until its lease ends.
        let layer = SessionLayer::new(EndedLeases(store.clone()));
        let first = layer.layer(agent).oneshot(key().request("Keep it.")).await;
        if let Err(error) = &first {
            assert_eq!(error.kind(), ErrorKind::Store, "{levels}: {error}");
            assert!(
                error.to_string().contains("could not be read again"),
                "{error}"
            );
        }
        assert_eq!(first.is_err(), levels > 124, "{levels}");

        Session::load(&store, &key()).await.unwrap().unwrap();
        let second = layer
            .layer(says("Hello."))
            .oneshot(key().request("Hi."))
            .await;
        assert_eq!(second.unwrap().text(), "Hello.", "{levels}");
    }
}
