//! Threads that many users leave idle.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tower_agent::RunStream;
use tower_agent_conversations::{
    ClientInput, ConversationKey, ConversationQuery, ConversationStore, MemoryConversations,
    RunProgress, Save, StoreError, Thread, Threads,
};
use tower_agent_test::Turn;

use crate::{Cashier, Plain};

/// More than are remembered as they were read.
const MANY: usize = 400;

fn key(number: usize) -> ConversationKey {
    ConversationKey::new("shop", "", format!("thread {number}"))
}

/// Runs a thread to an answer, and leaves it with this state.
async fn run(threads: &Threads, number: usize, message: &str, state: Value) {
    try_run(threads, number, message, state).await.unwrap();
}

async fn try_run(
    threads: &Threads,
    number: usize,
    message: &str,
    state: Value,
) -> Result<(), StoreError> {
    let cashier = Cashier::new([Turn::from_text(format!("You said {message}."))]);
    let words = [Plain::user(message, "Hi.")];
    let input = ClientInput::new(format!("run of {message}"), &words);
    let mut begun = threads.begin(key(number), input).await.unwrap();
    let run = RunStream::named(cashier.agent.clone(), begun.request, begun.name);
    let checkpoint = run.response().await.unwrap().checkpoint();
    let messages = checkpoint.messages.clone();
    let state = Map::from_iter([("left".to_owned(), state)]);
    let save = begun
        .keeper
        .keep(checkpoint, state, &messages, RunProgress::Ended);
    let Save::Store(saving) = save else {
        panic!("it is kept in a store");
    };
    saving.await
}

async fn load(store: &MemoryConversations, number: usize) -> Thread {
    Thread::load(store, &key(number)).await.unwrap().unwrap()
}

#[tokio::test]
async fn idle_threads_stay_as_they_were_and_go_on() {
    let store = Arc::new(MemoryConversations::new());
    let threads = Threads::new(store.clone()).allow_partial_history();
    let mut left = Vec::new();
    for number in 0..MANY {
        run(&threads, number, "m1", json!(number as f64 / 7.0)).await;
        left.push(serde_json::to_value(load(&store, number).await).unwrap());
    }
    let all = ConversationQuery::new().limit(1000);
    assert_eq!(store.list(&all).await.unwrap().len(), MANY);
    for (number, left) in left.iter().enumerate() {
        let found = serde_json::to_value(load(&store, number).await).unwrap();
        assert_eq!(found, *left, "thread {number}");
    }
    for number in [0, MANY / 2, MANY - 1] {
        run(&threads, number, "m2", Value::Null).await;
        let thread = load(&store, number).await;
        let texts: Vec<_> = thread
            .messages()
            .iter()
            .map(|message| message.text())
            .collect();
        assert_eq!(texts, ["Hi.", "You said m1.", "Hi.", "You said m2."]);
    }
}

#[tokio::test]
async fn a_state_that_could_not_be_read_again_is_not_stored() {
    let deep = (0..300).fold(Value::Null, |inner, _| json!([inner]));
    let threads = Threads::new(MemoryConversations::new());
    let refused = try_run(&threads, 0, "m1", deep).await.unwrap_err();
    assert!(refused.to_string().contains("levels deep"), "{refused}");
}
