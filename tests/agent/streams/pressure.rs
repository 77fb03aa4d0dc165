//! A reader that is slow, stops, or leaves.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};
use tower_agent::callback::before_model;
use tower_agent::stream::{Delta, EventKind, EventStream};
use tower_agent::{
    Agent, Error, Interrupt, ModelRequest, ModelResponse, Request, RunContext, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

/// A model that counts the deltas it was let to say.
fn talker(words: usize, said: Arc<AtomicUsize>) -> Agent {
    let model = tower::service_fn(move |request: ModelRequest| {
        let said = said.clone();
        async move {
            let mut attempt = request.delta_sender().unwrap().open();
            for _ in 0..words {
                attempt.send(Delta::Text("word ".into())).await?;
                said.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
        }
    });
    Agent::builder(model).build().unwrap()
}

#[tokio::test]
async fn nothing_happens_that_is_not_read() {
    let said = Arc::<AtomicUsize>::default();
    let mut run = talker(1000, said.clone()).stream("?");
    assert_eq!(said.load(Ordering::Relaxed), 0);

    let mut read = 0;
    while read < 100 {
        if let EventKind::TextDelta { .. } = run.next().await.unwrap().kind {
            read += 1;
        }
    }

    let ahead = said.load(Ordering::Relaxed) - read;
    assert!(ahead <= 17, "{ahead} words ahead of the reader");
    drop(run);
    assert!(said.load(Ordering::Relaxed) < 120);
}

#[tokio::test]
async fn tools_beside_one_another_all_get_through_a_full_queue() {
    let tool = Tool::function_with("count", "Counts.", async |_: Value, call: ToolRequest| {
        for number in 0..100 {
            call.context().emit("number", number).await;
        }
    });
    let turn = (1..3).fold(Turn::tool("count", json!(0)), |turn, _| {
        turn.and_tool("count", json!(0))
    });
    let model = ScriptedModel::new([turn, Turn::from_text("done")]);
    let agent = Agent::builder(model).tool(tool).build().unwrap();

    let events: Vec<_> = agent.stream("?").collect().await;

    let count = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Custom { .. }))
        .count();
    assert_eq!(count, 300);
}

/// A sender of one event, in a task of its own.
struct Sender<'a> {
    send: Pin<Box<dyn Future<Output = ()> + 'a>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<'a> Sender<'a> {
    fn of(context: &'a RunContext, name: &'static str) -> Self {
        Self {
            send: Box::pin(context.emit(name, ())),
            woken: Arc::default(),
        }
    }

    /// Returns whether the event was sent, and there is room for more.
    fn is_through(&mut self) -> bool {
        let waker = Waker::from(self.woken.clone());
        self.send
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
    }

    fn wakes(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

/// The name of the next event, which is there.
fn next(events: &mut EventStream) -> String {
    let event = events
        .next()
        .now_or_never()
        .flatten()
        .expect("there is an event");
    let EventKind::Custom { name, .. } = event.kind else {
        panic!("{event:?}")
    };
    name.to_string()
}

#[test]
fn the_sender_that_has_waited_longest_is_woken_and_hands_its_turn_on() {
    let (context, mut events) = RunContext::default().watched("run".into(), 1);
    assert!(Sender::of(&context, "a").is_through());
    let (mut first, mut second) = (Sender::of(&context, "b"), Sender::of(&context, "c"));
    assert!(!first.is_through() && !second.is_through());
    assert_eq!(next(&mut events), "a");
    assert_eq!(
        (first.wakes(), second.wakes()),
        (0, 0),
        "the queue is still full"
    );

    assert_eq!(next(&mut events), "b");
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    drop(first);

    assert_eq!(second.wakes(), 1);
    assert!(second.is_through());
    assert_eq!(next(&mut events), "c");
}

#[test]
fn a_sender_that_finds_the_queue_full_again_keeps_its_turn() {
    let (context, mut events) = RunContext::default().watched("run".into(), 1);
    assert!(Sender::of(&context, "a").is_through());
    let (mut first, mut second) = (Sender::of(&context, "b"), Sender::of(&context, "c"));
    assert!(!first.is_through() && !second.is_through());
    assert_eq!([next(&mut events), next(&mut events)], ["a", "b"]);
    assert_eq!(first.wakes(), 1);
    let mut faster = Sender::of(&context, "d");
    assert!(!faster.is_through() && !first.is_through());

    assert_eq!(next(&mut events), "c");

    assert_eq!((first.wakes(), second.wakes(), faster.wakes()), (2, 0, 0));
    assert!(first.is_through());
    assert_eq!((second.wakes(), faster.wakes()), (1, 0));
    assert!(second.is_through() && faster.is_through());
}

#[test]
fn a_stream_that_is_dropped_lets_every_sender_go() {
    let (context, events) = RunContext::default().watched("run".into(), 1);
    assert!(Sender::of(&context, "a").is_through());
    let mut senders = ["b", "c"].map(|name| Sender::of(&context, name));
    assert!(senders.iter_mut().all(|sender| !sender.is_through()));

    drop(events);

    assert!(senders.iter().all(|sender| sender.wakes() == 1));
    assert!(senders.iter_mut().all(Sender::is_through));
}

#[tokio::test]
async fn dropping_the_stream_drops_the_call() {
    struct Told(Arc<AtomicUsize>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::<AtomicUsize>::default();
    let model = tower::service_fn({
        let dropped = dropped.clone();
        move |_: ModelRequest| {
            let told = Told(dropped.clone());
            async move {
                let _told = told;
                std::future::pending::<Result<ModelResponse, Error>>().await
            }
        }
    });
    let agent = Agent::builder(model).build().unwrap();
    let mut run = agent.stream("?");
    while let Some(Some(_)) = run.next().now_or_never() {}
    assert_eq!(dropped.load(Ordering::Relaxed), 0);

    drop(run);

    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_consumers_time_is_distinguished_from_the_models() {
    let waited = Arc::new(std::sync::Mutex::new(Duration::ZERO));
    let model = tower::service_fn({
        let waited = waited.clone();
        move |request: ModelRequest| {
            let waited = waited.clone();
            async move {
                let wait = request.consumer_wait();
                let mut attempt = request.delta_sender().unwrap().open();
                for _ in 0..40 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    attempt.send(Delta::Text("word ".into())).await?;
                }
                let answer = attempt.finish().await?;
                *waited.lock().unwrap() = wait.elapsed();
                Ok::<_, Error>(ModelResponse::from(answer))
            }
        }
    });
    let agent = Agent::builder(model).build().unwrap();
    let start = Instant::now();

    let mut run = agent.stream("?");
    let mut read = Duration::ZERO;
    while let Some(event) = run.next().await {
        if let EventKind::TextDelta { .. } = event.kind {
            advance(Duration::from_secs(10)).await;
            read += Duration::from_secs(10);
        }
    }

    // Time of the reader while the model's timer runs counts as the reader's.
    let waited = *waited.lock().unwrap();
    assert!(
        waited <= read && waited >= read - Duration::from_secs(10),
        "{waited:?} of {read:?}"
    );
    assert_eq!(
        start.elapsed() - read,
        Duration::from_secs(40) - Duration::from_secs(39)
    );
}

#[tokio::test]
async fn without_a_consumer_nothing_waits_for_one() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_model(before_model(|request| {
            assert!(request.delta_sender().is_none());
            assert_eq!(request.consumer_wait().elapsed(), Duration::ZERO);
        }))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
}

/// An agent whose tool emits this many events, and then ends the run in one of three ways.
fn emits_and_ends(count: usize, end: &'static str) -> Agent {
    let tool = Tool::function_with(
        "end",
        "Ends.",
        move |_: Value, call: ToolRequest| async move {
            for number in 0..count {
                call.context().emit("piece", number).await;
            }
            match end {
                "interrupted" => Err(Error::interrupt(Interrupt::new("may I?", "confirmation"))),
                "failed" => Err(Error::abort("enough")),
                _ => Ok("ended"),
            }
        },
    );
    let turns = [Turn::tool("end", json!({})), Turn::from_text("Done.")];
    Agent::builder(ScriptedModel::new(turns))
        .tool(tool)
        .build()
        .unwrap()
}

/// The queue is full at the end for some of the counts: a run that then waits for room must have
/// set its result before.
#[tokio::test]
async fn the_checkpoint_at_the_last_event_is_that_of_the_end_however_full_the_queue_is() {
    for count in 0..=64 {
        for end in ["finished", "interrupted", "failed"] {
            let mut run = emits_and_ends(count, end).stream("Go.");
            let mut last = None;
            while let Some(event) = run.next().await {
                last = Some((event.kind, run.checkpoint()));
            }
            let (kind, at_the_end) = last.unwrap();
            let waits = match kind {
                EventKind::RunInterrupted { interrupts } => interrupts.len(),
                EventKind::RunFinished { .. } | EventKind::RunFailed { .. } => 0,
                other => panic!("{other:?}"),
            };
            assert_eq!(at_the_end.head.interrupts.len(), waits, "{end}, {count}");
            assert_eq!(at_the_end, run.checkpoint(), "{end}, {count}");
            let of_result = match run.response().await {
                Ok(response) => response.checkpoint(),
                Err(error) => error.checkpoint().cloned().unwrap(),
            };
            assert_eq!(at_the_end, of_result, "{end}, {count}");
        }
    }
}
