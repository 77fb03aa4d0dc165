//! The memory of what waits, with 10,000 of it at once: what each has allocated, without what they
//! share.
//!
//! The runs make their tool calls, and then wait for a model that does not respond.

#[path = "support/by_hand.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared; nothing reads its messages"
)]
mod by_hand;
mod support;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::{Stream, StreamExt};
use tower::service_fn;
use tower_agent::{Agent, AgentRequest, BoxError, ModelRequest};
use tower_agent_agui::conversations::{ConversationKey, ConversationStore, MemoryConversations};
use tower_agent_agui::{AgUi, Message, RunAgentInput};

use self::support::allocations::{self, Allocations};
use self::support::{finish, is_bench, work};

/// The tool calls of a run.
const SUMS: usize = 20;

fn main() {
    // A debug build takes long, and a test only checks that the bench runs.
    let count = if is_bench() { 10_000 } else { 10 };
    println!("| {count} at once | bytes each | blocks each | aim, bytes |");
    println!("|---|--:|--:|--:|");
    row(
        "for comparison: the history of a loop by hand, after 20",
        history_by_hand(count, SUMS),
        String::new(),
    );
    row(
        "`agent.run`, before a tool call",
        run(count, 0),
        String::new(),
    );
    row(
        "`agent.run`, after 20",
        run(count, SUMS),
        "10,000".to_owned(),
    );
    row(
        "`agent.stream`, before a tool call",
        stream(count, 0),
        String::new(),
    );
    row(
        "`agent.stream`, after 20",
        stream(count, SUMS),
        String::new(),
    );
    row(
        "an AG-UI run, before a tool call",
        agui_run(count, 0),
        String::new(),
    );
    row(
        "an AG-UI run, after 20",
        agui_run(count, SUMS),
        "20,000".to_owned(),
    );
    let (thread, json) = idle_thread(count);
    let aim = format!("{:.0}, 1.2 times its JSON", 1.2 * json as f64);
    row("an idle AG-UI thread, after 20", thread, aim);
    println!(
        "\nThe thread has {:.2} times the bytes of its JSON, {json}.",
        thread.bytes as f64 / json as f64
    );
}

fn row(name: &str, each: Allocations, aim: String) {
    println!("| {name} | {} | {} | {aim} |", each.bytes, each.count);
}

/// Returns what each of so many has allocated and not freed.
fn each<T>(count: usize, mut make: impl FnMut(usize) -> T) -> Allocations {
    // The first one allocates what all share.
    let first = make(0);
    let mut made = Vec::with_capacity(count);
    let live = allocations::live(|| made.extend((1..=count).map(&mut make)));
    drop((first, made));
    Allocations {
        count: live.count / count,
        bytes: live.bytes / count,
    }
}

/// An agent whose model calls the tool so many times, and does not respond once more.
fn waiting(sums: usize) -> Agent {
    let model = service_fn(move |request: ModelRequest| async move {
        if request.messages().len() / 2 == sums {
            return pending().await;
        }
        Ok::<_, BoxError>(work::answer(request.messages(), sums))
    });
    agent(model)
}

fn agent(model: impl tower_agent::model::ModelService) -> Agent {
    Agent::builder(model)
        .tool(work::add())
        .max_iterations(u32::MAX)
        .build()
        .unwrap()
}

/// What a loop by hand has to keep: its messages, as plain structs.
fn history_by_hand(count: usize, sums: usize) -> Allocations {
    let by_hand = by_hand::Loop::new(sums, 0);
    each(count, |_| finish(by_hand.run("Count.")).unwrap())
}

fn run(count: usize, sums: usize) -> Allocations {
    let agent = waiting(sums);
    each(count, |_| {
        let mut run: Pin<Box<dyn Future<Output = _>>> =
            Box::pin(agent.run(AgentRequest::new("Count.")));
        assert!(run.as_mut().poll(&mut context()).is_pending());
        run
    })
}

fn stream(count: usize, sums: usize) -> Allocations {
    let agent = waiting(sums);
    each(count, |_| {
        let mut run = Box::pin(agent.stream("Count."));
        assert!(read(&mut run) > 2 * sums);
        run
    })
}

fn agui_run(count: usize, sums: usize) -> Allocations {
    let server = AgUi::builder(waiting(sums))
        .threads(store())
        .max_runs(usize::MAX)
        .build();
    each(count, |thread| {
        let mut run = Box::pin(finish(server.run(input(thread))).unwrap());
        assert!(read(&mut run) > 2 * sums);
        run
    })
}

/// A thread in memory after a run, and the length of its JSON.
fn idle_thread(count: usize) -> (Allocations, usize) {
    let store = Arc::new(store());
    let server = AgUi::builder(agent(work::model(SUMS))).threads(store.clone());
    let server = server.name("bench").build();
    let thread = each(count, |thread| {
        finish(async { server.run(input(thread)).await.unwrap().count().await });
    });
    let key = ConversationKey::new("bench", "", name(count));
    let saved = finish(store.load(&key, 0)).unwrap().unwrap();
    let entries: usize = saved.entries.iter().map(String::len).sum();
    (thread, saved.head.len() + entries)
}

/// A store in which everything has room.
fn store() -> MemoryConversations {
    MemoryConversations::new()
        .max_conversations(usize::MAX)
        .max_bytes(usize::MAX)
}

fn name(thread: usize) -> String {
    format!("thread {thread:05}")
}

fn input(thread: usize) -> RunAgentInput {
    RunAgentInput::new(name(thread), "run", [Message::user("m1", "Count.")])
}

/// Reads a stream until it waits; returns the number of its items.
fn read(stream: &mut (impl Stream + Unpin)) -> usize {
    let mut items = 0;
    while let Poll::Ready(item) = stream.poll_next_unpin(&mut context()) {
        assert!(item.is_some(), "it is over");
        items += 1;
    }
    items
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
