//! The room that each principal has in memory.

use std::sync::Arc;

use serde_json::json;
use tower_agent::{BoxError, Resolution, RunStream};
use tower_agent_conversations::{
    ClientInput, ConversationKey, ConversationQuery, ConversationStore, MemoryConversations,
    Refusal, RunProgress, Save, SealKey, Threads,
};
use tower_agent_test::Turn;

use crate::{Cashier, Plain};

fn key(principal: &str, thread: &str) -> ConversationKey {
    ConversationKey::new("shop", principal, thread)
}

/// Runs a thread of this principal to a question, or to an answer.
async fn run(threads: &Threads, key: ConversationKey, waits: bool) -> Result<(), BoxError> {
    let turn = if waits {
        Turn::tool("pay", json!({}))
    } else {
        Turn::from_text("Hello.")
    };
    let cashier = Cashier::new([turn]);
    let words = [Plain::user("m1", "Hi.")];
    let mut begun = threads.begin(key, ClientInput::new("r1", &words)).await?;
    let run = RunStream::named(cashier.agent.clone(), begun.request, begun.name);
    let response = run.response().await?;
    let checkpoint = response.checkpoint();
    let messages = checkpoint.messages.clone();
    let state = serde_json::Map::new();
    let keeper = &mut begun.keeper;
    match keeper.keep(checkpoint, state, &messages, RunProgress::Ended) {
        Save::Store(saving) => Ok(saving.await?),
        other => panic!("{other:?}"),
    }
}

async fn names(store: &MemoryConversations, query: ConversationQuery) -> Vec<String> {
    let page = store.list(&query).await.unwrap();
    let mut names: Vec<String> = page.iter().map(|info| info.key.id.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_questions_of_one_principal_do_not_evict_that_of_another() {
    let store = Arc::new(
        MemoryConversations::new()
            .max_conversations(4)
            .max_conversations_of_user(10),
    );
    let threads = Threads::new(store.clone());
    run(&threads, key("ann", "question"), true).await.unwrap();
    for number in 0..10 {
        let thread = format!("flood {number}");
        run(&threads, key("eve", &thread), true).await.unwrap();
    }
    let anns = names(&store, ConversationQuery::new().user("ann")).await;
    assert_eq!(anns, ["question"]);
    let eves = names(&store, ConversationQuery::new().user("eve")).await;
    assert_eq!(eves, ["flood 7", "flood 8", "flood 9"]);
}

#[tokio::test]
async fn a_question_that_finds_no_room_is_not_asked() {
    let store = Arc::new(MemoryConversations::new().max_conversations(2));
    let threads = Threads::new(store.clone());
    run(&threads, key("ann", "1"), true).await.unwrap();
    run(&threads, key("bob", "2"), true).await.unwrap();
    assert!(run(&threads, key("eve", "3"), true).await.is_err());
    assert_eq!(
        names(&store, ConversationQuery::new().waiting()).await,
        ["1", "2"]
    );
    // What nobody waits for makes room.
    store.delete(&key("bob", "2")).await.unwrap();
    run(&threads, key("bob", "2"), false).await.unwrap();
    run(&threads, key("eve", "3"), true).await.unwrap();
    assert_eq!(names(&store, ConversationQuery::new()).await, ["1", "3"]);
}

#[tokio::test]
async fn a_principal_at_its_limit_loses_its_own_threads_and_questions_last() {
    let store = Arc::new(MemoryConversations::new().max_conversations_of_user(2));
    let threads = Threads::new(store.clone());
    run(&threads, key("bob", "bob's"), false).await.unwrap();
    run(&threads, key("ann", "question"), true).await.unwrap();
    run(&threads, key("ann", "first"), false).await.unwrap();
    run(&threads, key("ann", "second"), false).await.unwrap();
    let all = names(&store, ConversationQuery::new()).await;
    assert_eq!(all, ["bob's", "question", "second"]);
}

#[tokio::test]
async fn a_question_keeps_its_id_while_it_is_open() {
    let sealed = Threads::default()
        .with_seal(SealKey::new([1; 32]))
        .allow_partial_history();
    let cashier = Cashier::new([
        Turn::tool("pay", json!({ "bill": 1 })).and_tool("pay", json!({ "bill": 2 })),
        Turn::from_text("Paid."),
    ]);
    let words = [Plain::user("m1", "Pay both.")];
    let asked = crate::reply(&cashier, &sealed, ClientInput::new("r1", &words))
        .await
        .unwrap();
    let [one, other] = &asked.interrupts[..] else {
        panic!("{asked:?}");
    };
    // Two tabs have the same thread. One answers the first question.
    let answer = |sealed: &Option<String>, id: &str, run: &str| {
        let mut input = ClientInput::new(run.to_owned(), &[] as &[Plain]);
        input.answers = vec![Resolution::resolved(id, json!({ "approved": true }))];
        input.sealed = sealed.iter().cloned().collect();
        input
    };
    let first = crate::reply(&cashier, &sealed, answer(&asked.sealed, one, "r2"))
        .await
        .unwrap();
    assert_eq!(first.interrupts.len(), 1);
    assert_eq!(&first.interrupts[0], other);
    assert_eq!(cashier.paid(), 1);
    // Both answer the other one.
    crate::reply(&cashier, &sealed, answer(&first.sealed, other, "r3"))
        .await
        .unwrap();
    assert_eq!(cashier.paid(), 2);
    let again = crate::reply(&cashier, &sealed, answer(&asked.sealed, other, "r4")).await;
    let refusal = again.unwrap_err();
    assert!(refusal.is::<Refusal>(), "{refusal}");
    assert_eq!(cashier.paid(), 2);
}
