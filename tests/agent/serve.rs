//! What servers have in common: places, readers that stop reading, and URLs of clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep};
use tower_agent::Agent;
use tower_agent::serve::{NoPlace, NotRead, Places, ReadTimeout, is_public_url};
use tower_agent_test::{ScriptedModel, Turn};

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

#[test]
fn places_are_counted_for_all_and_for_each_until_they_are_dropped() {
    let (ada, bob, nobody): (Arc<str>, Arc<str>, Arc<str>) =
        ("ada".into(), "bob".into(), "".into());
    let places = Places::new(4, 2);
    let first = places.take(&ada).unwrap();
    let _second = places.take(&ada).unwrap();
    let NoPlace::Each { max: 2 } = places.take(&ada).unwrap_err() else {
        panic!("ada has two")
    };
    // Clones share them, and nobody's are counted for nobody.
    let _others = [&bob, &nobody].map(|of| places.clone().take(of).unwrap());
    let NoPlace::All { max: 4 } = places.take(&bob).unwrap_err() else {
        panic!("all have four")
    };
    drop(first);
    let again = places.take(&ada).unwrap();
    assert!(places.take(&nobody).is_err());
    drop(again);
    assert!(places.take(&nobody).is_ok());
    let none = Places::new(0, 0);
    assert!(none.take(&ada).is_err());
}

#[test]
fn a_public_url_is_https_with_a_name_on_the_internet() {
    for public in [
        "https://images.example.com/a.png?b=c#d",
        "HTTPS://Example.COM",
        "https://example.com.:8443/",
        "https://xn--mller-kva.example/",
    ] {
        assert!(is_public_url(public), "{public}");
    }
    for other in [
        "",
        "example.com",
        "http://example.com/",
        "file:///etc/passwd",
        "data:text/plain,x",
        "https://",
        "https:///a",
        // Of the machine, its network, and its cloud.
        "https://localhost/",
        "https://printer/",
        "https://printer.local/",
        "https://metadata.google.internal/",
        "https://169.254.169.254/latest/meta-data/",
        "http://169.254.169.254/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.0x1/",
        "https://[::1]/",
        "https://[fd00::1]/",
        // What parsers read in two ways.
        "https://example.com@169.254.169.254/",
        "https://example.com:80@10.0.0.1/",
        "https://example.com\\@10.0.0.1/",
        "https://example.com\t.evil/",
        "https://exa mple.com/",
        "https://example.com%2f@10.0.0.1/",
        "https://example..com/",
        // Full width, which some parsers take for digits.
        "https://１２７.0.0.1/",
        "https://127。0。0。1/",
        // Where a provider keeps files, with its own key.
        "https://api.openai.com/v1/files/x",
        "https://storage.googleapis.com/bucket/x",
        "https://api.anthropic.com./v1/files/x",
    ] {
        assert!(!is_public_url(other), "{other}");
    }
}
