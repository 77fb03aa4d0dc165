//! Rows of limits: when they are created and deleted.

use std::time::Duration;

use futures::future::join_all;
use tower_agent_durable::Postgres;

use super::clock::Clock;
use super::{MINUTE, SECOND, exhausted, from, of_users};
use crate::support::server::Server;

/// Ends a process, and begins another one some time later: the ends of the calls are written
/// before.
async fn later(clock: &Clock<'_>, process: Postgres, time: Duration) -> Postgres {
    process.close().await;
    clock.advance(time);
    clock.open().await
}

#[tokio::test]
async fn rows_that_say_nothing_are_deleted_a_hundred_at_a_time_and_others_stay() {
    let Some(server) = Server::start("rates-rows") else {
        return;
    };
    let clock = Clock::new(&server, "rows");
    let process = clock.open().await;
    let agent = of_users(&process);
    for number in 0..120 {
        agent.run(from(format!("early {number}"))).await.unwrap();
    }
    assert_eq!(clock.rows(), 120);
    let process = later(&clock, process, MINUTE).await;
    of_users(&process).run(from("late")).await.unwrap();
    let process = later(&clock, process, SECOND * 59).await;
    let agent = of_users(&process);
    // Its minute is not over: nothing is deleted.
    agent.run(from("one")).await.unwrap();
    assert_eq!(clock.rows(), 122);
    let error = agent.run(from("late")).await.unwrap_err();
    assert_eq!(exhausted(&error).retry_after, SECOND);
    let process = later(&clock, process, SECOND).await;
    let agent = of_users(&process);
    for (name, rows) in [("two", 23), ("three", 4), ("four", 5)] {
        agent.run(from(name)).await.unwrap();
        assert_eq!(clock.rows(), rows);
    }
    let error = agent.run(from("one")).await.unwrap_err();
    assert_eq!(exhausted(&error).retry_after, SECOND * 59);
    agent.run(from("early 7")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_is_created_by_several_at_once() {
    let Some(server) = Server::start("rates-created") else {
        return;
    };
    for round in 0..5 {
        let name = format!("created_{round}");
        server.create(&name);
        let url = server.url(&name);
        let opening = (0..4).map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                let database = Postgres::connect(&url).await.unwrap();
                of_users(&database).run(from("ada")).await.is_ok()
            })
        });
        let passed = join_all(opening).await;
        let passed = passed
            .into_iter()
            .filter(|passed| *passed.as_ref().unwrap());
        assert_eq!(passed.count(), 1);
    }
}
