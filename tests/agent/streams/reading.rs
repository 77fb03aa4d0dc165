//! Readers that stop reading, and what is let go then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep};
use tower_agent::Agent;
use tower_agent::stream::{NotRead, ReadTimeout};
use tower_agent::testing::{ScriptedModel, Turn};

const MINUTE: Duration = Duration::from_secs(60);

/// The longest time until a reader is let go.
const LET_GO: Duration = Duration::from_secs(121);

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Numbers, each after a wait, and whether they were dropped.
fn numbers(wait: Duration) -> (impl Stream<Item = u32> + Unpin + Send, Arc<AtomicBool>) {
    let is_dropped = Arc::<AtomicBool>::default();
    let start = (0, Dropped(is_dropped.clone()));
    let numbers = stream::unfold(start, move |(number, guard)| async move {
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Some((number, (number + 1, guard)))
    });
    (Box::pin(numbers), is_dropped)
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_loses_the_stream_and_is_told_once() {
    let (numbers, is_dropped) = numbers(Duration::ZERO);
    let mut read = ReadTimeout::new(numbers, MINUTE);
    for number in 0..3 {
        assert_eq!(read.next().await, Some(Ok(number)));
        sleep(MINUTE - Duration::from_secs(1)).await;
        assert!(!is_dropped.load(Ordering::SeqCst));
    }
    sleep(LET_GO).await;
    assert!(is_dropped.load(Ordering::SeqCst));
    assert_eq!(read.next().await, Some(Err(NotRead)));
    assert_eq!(read.next().await, None);
    assert_eq!(
        read.poll_with(|_| Poll::Ready(1)),
        Poll::Ready(Err(NotRead))
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_was_never_read_is_let_go_as_well() {
    let (numbers, is_dropped) = numbers(Duration::ZERO);
    let read = ReadTimeout::new(numbers, MINUTE);
    sleep(MINUTE).await;
    assert!(!is_dropped.load(Ordering::SeqCst));
    sleep(LET_GO - MINUTE).await;
    assert!(is_dropped.load(Ordering::SeqCst));
    drop(read);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_has_all_the_time() {
    let (numbers, _) = numbers(MINUTE * 60);
    let mut read = ReadTimeout::new(numbers, MINUTE);
    let start = Instant::now();
    for number in 0..3 {
        assert_eq!(read.next().await, Some(Ok(number)));
    }
    assert_eq!(start.elapsed(), MINUTE * 180);
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_dropped_at_once_and_leaves_no_timer() {
    let (numbers, is_dropped) = numbers(Duration::ZERO);
    let mut read = ReadTimeout::new(numbers, Duration::MAX);
    assert_eq!(read.next().await, Some(Ok(0)));
    drop(read);
    assert!(is_dropped.load(Ordering::SeqCst));
    tokio::task::yield_now().await;
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_reads_gives_back_what_it_has() {
    let (numbers, is_dropped) = numbers(Duration::ZERO);
    let held = Arc::new(std::sync::Mutex::new(numbers));
    let model = ScriptedModel::new([Turn::from_text("word ".repeat(1000))]).chunk_size(5);
    let agent = Agent::builder(model);
    let agent = agent.on_agent(tower_agent::callback::before_agent(move |_| {
        let _held = &held;
    }));
    let agent = agent.build().unwrap();
    let mut run = ReadTimeout::new(agent.stream("Hello."), MINUTE);
    drop(agent);
    assert!(run.next().await.unwrap().is_ok());
    sleep(LET_GO).await;
    assert!(is_dropped.load(Ordering::SeqCst));
    assert!(run.next().await.unwrap().is_err());
}
