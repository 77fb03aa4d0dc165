//! One thread on several devices of its user: what each is shown, and what it has missed.

use std::sync::Arc;

use serde_json::{Map, json};
use test_support::store::EndedLeases;
use tower_agent::message::{Message, Messages, Role};
use tower_agent_conversations::{
    Begun, ClientInput, ClientView, ConversationKey, MemoryConversations, RefusalKind, RunProgress,
    Save, SealKey, ShownMessage, Thread, Threads,
};
use tower_agent_test::Turn;

use crate::{Cashier, Plain, approve, key, reply};

fn words(texts: &[&str]) -> Cashier {
    Cashier::new(texts.iter().map(|text| Turn::from_text(*text)))
}

/// Sends what a device has, with its mark.
async fn says(cashier: &Cashier, threads: &Threads, run: &str, has: &[Plain], mark: Option<&str>) {
    let mut input = ClientInput::new(run, has);
    input.reader = mark.map(str::to_owned);
    reply(cashier, threads, input).await.unwrap();
}

/// Begins a run, and returns the texts that its device has missed, each with its place.
async fn missed(
    threads: &Threads,
    has: &[Plain],
    mark: Option<&str>,
) -> (Vec<(usize, String)>, Begun) {
    let mut input = ClientInput::new("missed", has);
    input.reader = mark.map(str::to_owned);
    let begun = threads.begin(key(), input).await.unwrap();
    let missed = begun.missed.iter();
    let missed = missed.map(|missed| (missed.after, text(&missed.message)));
    (missed.collect(), begun)
}

fn text(message: &ShownMessage) -> String {
    match message {
        ShownMessage::Whole { message, .. } => message.text(),
        other => panic!("{other:?}"),
    }
}

async fn shown(threads: &Threads) -> Vec<String> {
    let thread = threads.show(&key()).await.unwrap().unwrap();
    thread.messages.iter().map(text).collect()
}

async fn mark(threads: &Threads) -> String {
    threads.show(&key()).await.unwrap().unwrap().reader
}

/// Returns what a device with these messages sends.
async fn all(threads: &Threads) -> Vec<Plain> {
    let thread = threads.show(&key()).await.unwrap().unwrap();
    let mut all = Vec::new();
    for message in &thread.messages {
        if let ShownMessage::Whole { id, message, .. } = message {
            all.push(Plain::new(id, message.role(), &message.text()));
        }
    }
    all
}

#[tokio::test]
async fn what_another_device_has_said_is_missed_where_it_was_said() {
    let cashier = words(&["one", "two"]);
    let threads = Threads::default();
    let first = [Plain::user("m1", "1")];
    says(&cashier, &threads, "r1", &first, None).await;
    let has = all(&threads).await;
    let phone = mark(&threads).await;
    let mut second = has.clone();
    second.push(Plain::user("m2", "2"));
    says(&cashier, &threads, "r2", &second, Some(&phone)).await;

    let mut third = has.clone();
    third.push(Plain::user("m3", "3"));
    let (missed, begun) = missed(&threads, &third, None).await;
    assert_eq!(missed, [(2, "2".to_owned()), (2, "two".to_owned())]);
    let messages = begun.request.checkpoint().messages;
    let texts: Vec<_> = messages.iter().map(Message::text).collect();
    assert_eq!(texts, ["1", "one", "2", "two", "3"]);
}

#[tokio::test]
async fn devices_without_a_mark_count_as_one_which_drops_what_it_omits() {
    let cashier = words(&["one", "two"]);
    let threads = Threads::default();
    let first = [Plain::user("m1", "1")];
    says(&cashier, &threads, "r1", &first, None).await;
    let has = all(&threads).await;
    let mut second = has.clone();
    second.push(Plain::user("m2", "2"));
    says(&cashier, &threads, "r2", &second, None).await;
    let forged = [
        "",
        ".",
        "laptop.0",
        "laptop",
        "-1",
        "00000000-0000-0000-0000-000000000000.x",
    ];
    for mark in [None].into_iter().chain(forged.map(Some)) {
        let (missed, begun) = missed(&threads, &has, mark).await;
        assert_eq!(missed, [], "{mark:?}");
        assert_eq!(begun.request.checkpoint().messages.len(), 2, "{mark:?}");
        cut(begun).await;
    }
    // A mark that claims to have received nothing drops nothing, and more than there is means all.
    let none = "00000000-0000-0000-0000-000000000000.0";
    let (missed_by_none, begun) = missed(&threads, &has, Some(none)).await;
    let messages = begun.request.checkpoint().messages;
    assert_eq!(messages.len(), 2 + missed_by_none.len());
    cut(begun).await;
    let most = format!("00000000-0000-0000-0000-000000000001.{}", usize::MAX);
    assert_eq!(missed(&threads, &has, Some(&most)).await.0, []);
}

/// Ends a run whose client is gone before it has done anything.
async fn cut(mut begun: Begun) {
    let checkpoint = begun.request.checkpoint();
    let messages = checkpoint.messages.clone();
    save(
        begun
            .keeper
            .keep(checkpoint, Map::new(), &messages, RunProgress::Cut),
    )
    .await;
}

async fn save(save: Save) {
    match save {
        Save::Store(saving) => saving.await.unwrap(),
        Save::Sealed(_) => panic!("the threads are in a store"),
    }
}

#[tokio::test]
async fn a_device_that_has_been_away_longest_is_told_more_than_it_has_missed() {
    let cashier = Cashier::new((0..60).map(|_| Turn::from_text("yes")));
    let store = Arc::new(MemoryConversations::new());
    let threads = Threads::new(store.clone());
    says(&cashier, &threads, "r", &[Plain::user("m", "0")], None).await;
    let first = mark(&threads).await;
    let mut has = all(&threads).await;
    has.push(Plain::user("own", "own"));
    says(&cashier, &threads, "own", &has, Some(&first)).await;
    let has = all(&threads).await;
    for number in 0..50 {
        let mut has = all(&threads).await;
        has.push(Plain::user(&format!("m{number}"), "next"));
        let mark = mark(&threads).await;
        says(&cashier, &threads, &format!("r{number}"), &has, Some(&mark)).await;
    }
    let stored = json!(Thread::load(&store, &key()).await.unwrap().unwrap());
    assert_eq!(stored["readers"].as_array().unwrap().len(), 32);
    let (missed, begun) = missed(&threads, &has, Some(&first)).await;
    assert_eq!(missed.len(), 100);
    assert_eq!(begun.request.checkpoint().messages.len(), 104);
}

/// A client that has received nothing.
struct Deaf;

impl ClientView for Deaf {
    fn has_message(&self, _: &str) -> bool {
        false
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        std::iter::empty()
    }
}

#[tokio::test]
async fn what_the_client_does_not_have_is_not_shown() {
    let threads = Threads::default();
    let hello = [Plain::user("m1", "Hello.")];
    let mut begun = threads
        .begin(key(), ClientInput::new("r1", &hello))
        .await
        .unwrap();
    let mut checkpoint = begun.request.checkpoint();
    checkpoint
        .messages
        .push(Message::assistant("A secret.").with_id("r1-m1.0"));
    save(
        begun
            .keeper
            .keep(checkpoint, Map::new(), &Deaf, RunProgress::Ended),
    )
    .await;
    assert_eq!(shown(&threads).await, ["Hello."]);

    // The device that has read the thread does not drop what it was not shown.
    let mark = mark(&threads).await;
    let (missed, begun) = missed(&threads, &hello, Some(&mark)).await;
    assert_eq!(missed, []);
    assert_eq!(begun.request.checkpoint().messages.len(), 2);
}

#[tokio::test]
async fn a_message_that_was_changed_since_is_shown_as_the_client_has_it() {
    let cashier = words(&["It is 1234."]);
    let threads = Threads::default();
    let hello = [Plain::user("m1", "Hello.")];
    says(&cashier, &threads, "r1", &hello, None).await;
    for note in ["once", "twice"] {
        let has = all(&threads).await;
        let mut begun = threads
            .begin(key(), ClientInput::new("r2", &has))
            .await
            .unwrap();
        let mut checkpoint = begun.request.checkpoint();
        let changed = |message: &Message| {
            let id = message.id().cloned().unwrap();
            match message.role() {
                Role::Assistant => Message::assistant(format!("A note, {note}.")).with_id(id),
                _ => message.clone(),
            }
        };
        checkpoint.messages = checkpoint
            .messages
            .iter()
            .map(changed)
            .collect::<Messages>();
        let messages = checkpoint.messages.clone();
        save(
            begun
                .keeper
                .keep(checkpoint, Map::new(), &messages, RunProgress::Ended),
        )
        .await;
        assert_eq!(shown(&threads).await, ["Hello.", "It is 1234."]);
    }
}

#[tokio::test]
async fn a_thread_shows_its_state_and_open_questions() {
    let cashier = Cashier::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")]);
    let threads = Threads::default().allow_partial_history();
    let pay = [Plain::user("m1", "Pay.")];
    let asks = reply(&cashier, &threads, ClientInput::new("r1", &pay))
        .await
        .unwrap();
    let thread = threads.show(&key()).await.unwrap().unwrap();
    let [interrupt] = &thread.interrupts[..] else {
        panic!("{thread:?}")
    };
    assert_eq!(*thread.interrupt_ids.of(&interrupt.id), *asks.interrupts[0]);
    assert_eq!(&*thread.run_id, "r1");

    // On another device.
    let mut yes = ClientInput::<Plain>::new("r2", &[]);
    yes.answers = approve(&asks.interrupts[0]);
    yes.reader = Some(thread.reader);
    assert_eq!(reply(&cashier, &threads, yes).await.unwrap().text, "Paid.");
    let thread = threads.show(&key()).await.unwrap().unwrap();
    assert_eq!(thread.interrupts, []);
    let ShownMessage::Whole { call, .. } = &thread.messages[2] else {
        panic!("{thread:?}")
    };
    assert!(call.as_ref().unwrap().ends_with("-t0"), "{call:?}");
}

#[tokio::test]
async fn a_question_of_a_run_whose_server_has_died_is_not_shown() {
    let cashier = Cashier::new([Turn::tool("pay", json!({}))]);
    let threads = Threads::new(EndedLeases(MemoryConversations::new()));
    let pay = [Plain::user("m1", "Pay.")];
    reply(&cashier, &threads, ClientInput::new("r1", &pay))
        .await
        .unwrap();
    let has = all(&threads).await;
    let begun = threads
        .begin(key(), ClientInput::new("r2", &has))
        .await
        .unwrap();
    std::mem::forget(begun);
    let thread = threads.show(&key()).await.unwrap().unwrap();
    assert_eq!(thread.interrupts, []);
}

#[tokio::test]
async fn a_thread_of_somebody_else_is_not_shown_and_a_sealed_one_is_not_stored() {
    let cashier = words(&["one"]);
    let threads = Threads::new(MemoryConversations::new());
    says(&cashier, &threads, "r1", &[Plain::user("m1", "1")], None).await;
    let of_bob = ConversationKey::new("shop", "bob", "1");
    assert!(threads.show(&of_bob).await.unwrap().is_none());
    let sealed = Threads::default().with_seal(SealKey::new([7; 32]));
    let refusal = sealed.show(&key()).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Store);
    assert!(!sealed.has_store() && threads.has_store());
}
