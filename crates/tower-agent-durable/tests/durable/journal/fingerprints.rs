//! The fingerprint of a request, by which the journal knows another one.

use serde_json::Value;
use tower_agent::{AgentBuilder, BoxError, Effect, Tool};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{Journal, JournalError};

use super::remembering::Remembering;
use crate::support::{Count, calling, counting, durable, journal_error, request};

/// Twelve turns, the last of which fails.
const CALLS: [&str; 12] = {
    let mut calls = ["look"; 12];
    calls[11] = "fail";
    calls
};

fn long(journal: impl Journal) -> AgentBuilder {
    let fails = |_: Value| Err::<(), BoxError>("broken".into());
    durable(calling(&CALLS, &Count::default()), journal)
        .tool(counting("look", Effect::Pure, &Count::default()))
        .tool(Tool::function("fail", "Fails.", fails))
}

#[tokio::test]
async fn a_stored_step_does_not_grow_with_the_conversation() {
    let inner = Sqlite::in_memory().await.unwrap();
    let journal = Remembering {
        inner,
        given: Default::default(),
    };
    long(journal.clone())
        .build()
        .unwrap()
        .run(request())
        .await
        .unwrap();

    let given = journal.given.lock().unwrap();
    let parts = given
        .iter()
        .filter_map(|given| given["fingerprint"].as_array());
    let of_models = parts.filter(|parts| parts[0][0] != "tool");
    let counts: Vec<_> = of_models.map(Vec::len).collect();
    assert_eq!(counts.len(), 13);
    // Two tools, eight messages, and all that came before them.
    assert!(counts.iter().all(|count| *count <= 11), "{counts:?}");
}

#[tokio::test]
async fn a_message_that_differs_is_named_however_long_the_conversation() {
    let database = Sqlite::in_memory().await.unwrap();
    long(database.clone())
        .build()
        .unwrap()
        .run(request())
        .await
        .unwrap();

    let changed = long(database)
        .tool_failure_message("It does not work.")
        .build()
        .unwrap();
    let error = changed.run(request()).await.unwrap_err();
    let JournalError::NonDeterminism { step, part } = journal_error(&error) else {
        panic!("{error}")
    };
    // A question, and twelve calls with their results.
    assert_eq!(&**part, "messages[24]");
    assert_eq!(step.to_string(), "model call 12 of `agent` in run `run 1`");
}
