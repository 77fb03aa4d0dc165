//! More runs at once than the database or the process can make.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use test_support::property::sample;
use tokio::sync::Semaphore;
use tower_agent::{Agent, AgentRequest, Effect, Tool};
use tower_agent_durable::journal::{Durable, Journal, RunQuery};
use tower_agent_durable::{Postgres, Sqlite};

use crate::support::folder::Folder;
use crate::support::server::Server;
use crate::support::{Count, calling, counting};

/// Returns the number of runs, and the time that a call may wait for a connection.
fn load() -> (usize, Duration) {
    // All of them take longer than a call may wait.
    sample(
        (400, Duration::from_secs(2)),
        (10_000, Duration::from_secs(10)),
    )
}

/// Makes all runs at once. Each has two model calls and a payment.
async fn make_at_once(journal: impl Journal, runs: usize) {
    let models = Count::default();
    let paid = Count::default();
    let agent = calling(&["pay"], &models);
    let agent = Agent::builder(agent)
        .name("agent")
        .global_callbacks(Durable::new(journal).max_runs(runs))
        .tool(counting("pay", Effect::Mutating, &paid))
        .build()
        .unwrap();
    let made = (0..runs).map(|run| {
        let request = AgentRequest::new("Pay.").with_run_id(format!("run {run}"));
        tokio::spawn(agent.run(request))
    });
    for made in join_all(made).await {
        assert_eq!(made.unwrap().unwrap().text(), "Done.");
    }
    let runs = u32::try_from(runs).unwrap();
    assert_eq!(models.get(), 2 * runs);
    assert_eq!(paid.get(), runs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_at_once_in_a_file_wait_for_their_turn_and_end_whole() {
    let folder = Folder::new("overload");
    let (runs, wait) = load();
    let options = Sqlite::options().wait(wait).readers(1);
    let database = options.open(folder.file("runs.db")).await.unwrap();
    make_at_once(database, runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_at_once_on_a_server_wait_for_their_turn_and_end_whole() {
    let Some(server) = Server::start("overload-server") else {
        return;
    };
    let (runs, wait) = load();
    let options = Postgres::options().wait(wait).max_connections(2);
    let database = options.connect(&server.url("postgres")).await.unwrap();
    make_at_once(database, runs).await;
}

#[tokio::test]
async fn a_journal_may_use_the_connections_of_the_application() {
    let Some(server) = Server::start("from-pool") else {
        return;
    };
    let pool = sqlx::PgPool::connect(&server.url("postgres"))
        .await
        .unwrap();
    let database = Postgres::from_pool(pool.clone()).await.unwrap();
    make_at_once(database.clone(), 3).await;
    assert_eq!(
        database.runs().list(&RunQuery::new()).await.unwrap().len(),
        3
    );
    let count: (i64,) = sqlx::query_as("SELECT count(*) FROM tower_agent_runs")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(count, (3,));
}

/// A tool call that is running.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn as_many_runs_as_the_limit_says_are_made_at_once() {
    let database = Sqlite::in_memory().await.unwrap();
    let [now, most] = [0; 2].map(|_| Arc::<AtomicUsize>::default());
    let may_end = Arc::new(Semaphore::new(0));
    let tool = {
        let (now, most, may_end) = (now.clone(), most.clone(), may_end.clone());
        move |_: Value| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let running = Running(now.clone());
            let may_end = may_end.clone();
            async move {
                may_end.acquire().await.unwrap().forget();
                drop(running);
                "paid"
            }
        }
    };
    let limited = Durable::new(database.clone()).max_runs(2);
    let agent = Agent::builder(calling(&["pay"], &Count::default()))
        .global_callbacks(limited)
        .tool(Tool::function("pay", "Pays.", tool))
        .build()
        .unwrap();
    let make = |run: u32| {
        let request = AgentRequest::new("Pay.").with_run_id(format!("run {run}"));
        tokio::spawn(agent.run(request))
    };
    let runs: Vec<_> = (0..5).map(make).collect();
    while now.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    // The others have not begun, and one that is dropped leaves its place.
    assert_eq!(
        database.runs().list(&RunQuery::new()).await.unwrap().len(),
        2
    );
    runs[0].abort();
    may_end.add_permits(5);
    for (number, run) in runs.into_iter().enumerate() {
        match run.await {
            Ok(made) => assert_eq!(made.unwrap().text(), "Done."),
            Err(error) => assert!(error.is_cancelled() && number == 0),
        }
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
