//! Ends of calls that nobody waits for, and calls that have none.

use std::io::{BufRead, BufReader, Write};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, select};
use futures::{FutureExt, poll};
use tokio::sync::{Notify, Semaphore};
use tower_agent::{Error, ErrorKind, ModelResponse, Result};
use tower_agent_durable::Postgres;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use super::clock::Clock;
use super::{MINUTE, at_once, exhausted, reserving, silent, using};
use crate::support::server::Server;
use test_support::call;

const DATABASE: &str = "TOWER_AGENT_TEST_RATES";

/// A limit of which 2,000,000 tokens may be used at once.
fn tokens(database: &Postgres) -> RateLimitLayer {
    let limit = at_once().tokens(4_000_000, MINUTE).burst(0.5);
    limit.shared_in(database.clone(), "key-1")
}

/// Returns whether nothing is used: a call that needs everything is let through, fails, and gives
/// everything back. Closes the database, so that it has come back.
async fn is_whole(database: Postgres) -> bool {
    let broken = Turn::error(Error::new(ErrorKind::Provider, "broken"));
    let model = tokens(&database).layer(ScriptedModel::always(broken));
    let error = call(model, reserving(2_000_000)).await.unwrap_err();
    database.close().await;
    error.kind() == ErrorKind::Provider
}

/// Makes a call that has reserved 1,000 tokens and goes on for ever.
async fn open_call(database: &Postgres) -> BoxFuture<'static, Result<ModelResponse>> {
    let called = Arc::new(Notify::new());
    let is_called = called.clone();
    let model = tokens(database).layer(silent(move || called.notify_one()));
    let running = call(model, reserving(1_000)).boxed();
    match select(running, pin!(is_called.notified())).await {
        Either::Left(_) => panic!("it has ended"),
        Either::Right(((), running)) => running,
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_back_what_it_has_not_used() {
    let Some(server) = Server::start("rates-dropped") else {
        return;
    };
    let clock = Clock::new(&server, "dropped");
    let one = clock.open().await;
    let other = clock.open().await;
    drop(open_call(&one).await);
    one.close().await;
    assert!(is_whole(other).await);
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_point_before_it_is_made_gives_all_back() {
    let Some(server) = Server::start("rates-points") else {
        return;
    };
    let clock = Clock::new(&server, "points");
    for polls in 1.. {
        let one = clock.open().await;
        let called = Arc::<AtomicBool>::default();
        let is_called = called.clone();
        let model = tokens(&one).layer(silent(move || is_called.store(true, Ordering::Relaxed)));
        let mut running = Box::pin(call(model, reserving(1_000)));
        for _ in 0..polls {
            if let Poll::Ready(result) = poll!(&mut running) {
                panic!("it has ended after {polls} polls: {result:?}");
            }
            // Lets the task of the limit go on, until it waits for the database.
            tokio::task::yield_now().await;
        }
        drop(running);
        if called.load(Ordering::Relaxed) {
            break;
        }
        one.close().await;
        let is_whole = is_whole(clock.open().await).await;
        assert!(is_whole, "dropped after {polls} polls");
    }
}

#[tokio::test]
async fn ten_thousand_calls_that_are_dropped_at_once_give_everything_back_in_few_writes() {
    let Some(server) = Server::start("rates-burst") else {
        return;
    };
    let clock = Clock::new(&server, "burst");
    let one = clock.open().await;
    let other = clock.open().await;
    let called = Arc::new(Semaphore::new(0));
    let count = called.clone();
    let model = tokens(&one).layer(silent(move || count.add_permits(1)));
    let running = join_all((0..10_000).map(|_| call(model.clone(), reserving(100))));
    // Dropped with the `select`.
    drop(select(pin!(running), pin!(called.acquire_many(10_000))).await);
    one.close().await;
    assert!(is_whole(other).await);
    let writes = clock.query(
        "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'tower_agent_rates'",
    );
    let writes: u32 = writes.parse().unwrap();
    assert!((2..500).contains(&writes), "{writes} writes");
}

#[tokio::test]
async fn a_call_that_ends_outside_a_runtime_counts_as_reserved() {
    let Some(server) = Server::start("rates-outside") else {
        return;
    };
    let clock = Clock::new(&server, "outside");
    let one = clock.open().await;
    let other = clock.open().await;
    let running = open_call(&one).await;
    std::thread::spawn(move || drop(running)).join().unwrap();
    one.close().await;
    assert!(!is_whole(other).await);
}

/// The process of the test below: it makes calls that never end.
#[tokio::test]
async fn a_process_with_open_calls() {
    let Ok(url) = std::env::var(DATABASE) else {
        return;
    };
    let database = Postgres::connect(&url).await.unwrap();
    let model = tokens(&database).layer(silent(|| {
        // Not `println`, which the harness captures.
        let mut output = std::io::stdout();
        output.write_all(b"\ncalled\n").unwrap();
        output.flush().unwrap();
    }));
    let calls = (0..3).map(|_| call(model.clone(), reserving(500_000)));
    join_all(calls).await;
}

#[tokio::test]
async fn the_calls_of_a_process_that_is_killed_count_as_reserved_and_come_back_with_the_time() {
    let Some(server) = Server::start("rates-killed") else {
        return;
    };
    let clock = Clock::new(&server, "killed");
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", "rate_limit::ends::a_process_with_open_calls"])
        .env(DATABASE, server.url(clock.database))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut program = program.spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let called = lines
        .map_while(Result::ok)
        .filter(|line| line.ends_with("called"));
    assert_eq!(called.take(3).count(), 3);
    program.kill().unwrap();
    program.wait().unwrap();

    let database = clock.open().await;
    let model = tokens(&database).layer(ScriptedModel::always(using(500_000)));
    call(model.clone(), reserving(500_000)).await.unwrap();
    let error = call(model.clone(), reserving(500_000)).await.unwrap_err();
    // PostgreSQL's clock has microseconds.
    clock.advance(exhausted(&error).retry_after + Duration::from_micros(1));
    call(model, reserving(500_000)).await.unwrap();
    clock.advance(MINUTE);
    assert!(is_whole(database).await);
}
