//! Many calls of several processes at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use tower_agent::model::ModelService;
use tower_agent_durable::Postgres;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_test::ScriptedModel;
use tower_layer::Layer;

use super::clock::Clock;
use super::{MINUTE, SECOND, at_once, reserving, using};
use crate::support::server::Server;
use test_support::call;

fn limited(limit: RateLimitLayer, database: &Postgres) -> impl ModelService {
    limit
        .shared_in(database.clone(), "key-1")
        .layer(ScriptedModel::always(using(1)))
}

/// Returns how often rows of limits were looked for, once all connections have been closed.
fn looks(server: &Server, database: &str) -> u32 {
    let looks = server.query_in(
        database,
        "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'tower_agent_rates'",
    );
    looks.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_of_two_processes_stay_in_a_limit_and_use_it() {
    const CALLS: u32 = 600;
    let Some(server) = Server::start("rates-load") else {
        return;
    };
    server.create("load");
    let one = server.connect_to("load").await;
    let other = server.connect_to("load").await;
    // 300 may be used at once, and the others come back in three seconds.
    let limit = || {
        let limit = RateLimitLayer::new().requests(600, SECOND * 3).burst(0.5);
        limit.max_wait(Duration::MAX)
    };
    let mut tasks = Vec::new();
    let made = Arc::new(AtomicU32::new(0));
    let start = Instant::now();
    for database in [&one, &other] {
        let model = limited(limit(), database);
        for _ in 0..32 {
            let model = model.clone();
            let made = made.clone();
            tasks.push(tokio::spawn(async move {
                let mut own = 0;
                while made.fetch_add(1, Ordering::Relaxed) < CALLS {
                    call(model.clone(), reserving(1)).await.unwrap();
                    own += 1;
                }
                own
            }));
        }
    }
    let own = join_all(tasks).await;
    let time = start.elapsed().as_secs_f64();
    let own: Vec<u32> = own.into_iter().map(Result::unwrap).collect();
    let of = |tasks: &[u32]| tasks.iter().sum::<u32>();
    assert_eq!(of(&own), CALLS);

    let allowed = 300.0 + time * 301.0 / 3.0;
    let made = f64::from(CALLS);
    assert!(made <= allowed + 1.0, "{made} of {allowed} in {time} s");
    // Who comes first may use all that there is at once. Of the 300 that come back both have
    // a part: neither keeps the other out.
    assert!(of(&own[..32]) > 30 && of(&own[32..]) > 30, "{own:?}");

    one.close().await;
    other.close().await;
    // Four a call, each of whose two changes reads the row and writes it, and those that were made
    // in vain: how many depends on the machine. If each task that waits asked whenever something
    // comes back, there would be far more.
    let looks = looks(&server, "load");
    assert!(looks <= CALLS * 10, "{looks} for {made} calls");
}

#[tokio::test]
async fn calls_that_wait_ask_once_for_each_process() {
    let Some(server) = Server::start("rates-waiting") else {
        return;
    };
    let clock = Clock::new(&server, "waiting");
    let one = clock.open().await;
    let other = clock.open().await;
    let limit = || {
        let limit = RateLimitLayer::new().requests(1, MINUTE * 60);
        limit.max_wait(Duration::MAX)
    };
    call(limited(limit(), &one), reserving(1)).await.unwrap();
    let mut waiting = Vec::new();
    for database in [&one, &other] {
        let model = limited(limit(), database);
        waiting.extend((0..32).map(|_| call(model.clone(), reserving(1))));
    }
    let mut waiting = join_all(waiting);
    // The first of each process are refused by the database; then all wait for an hour.
    let refused = limited(at_once().requests(1, MINUTE * 60), &one);
    for _ in 0..20 {
        assert!((&mut waiting).now_or_never().is_none());
        call(refused.clone(), reserving(1)).await.unwrap_err();
    }
    drop(waiting);
    one.close().await;
    other.close().await;
    // The first call and its end, 20 that are refused, and one for each process.
    let looks = looks(&server, "waiting");
    assert!((23..40).contains(&looks), "{looks}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_calls_at_once_exactly_those_in_the_limit_are_made() {
    let Some(server) = Server::start("rates-exact") else {
        return;
    };
    for (database, isolation) in [("exact", "read committed"), ("strict", "serializable")] {
        // The clock stands still, so that nothing comes back.
        let clock = Clock::new(&server, database);
        clock.query(&format!(
            "ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'"
        ));
        let limit = at_once().requests(100, MINUTE).burst(0.5);
        // Then there is a row, which they all read before one of them writes it.
        let first = limited(limit.clone(), &clock.open().await);
        call(first, reserving(1)).await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..4 {
            let process = clock.open().await;
            let model = limited(limit.clone(), &process);
            calls.extend((0..50).map(|_| tokio::spawn(call(model.clone(), reserving(1)))));
        }
        let results = join_all(calls).await;
        let made = results.iter().filter(|result| matches!(result, Ok(Ok(_))));
        assert_eq!(made.count(), 49, "{isolation}");
    }
}
