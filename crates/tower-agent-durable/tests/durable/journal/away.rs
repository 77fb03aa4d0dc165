//! A server that goes away in the middle of a run, and comes back.

use std::sync::{Arc, Mutex};

use tower_agent::Error;
use tower_agent_durable::journal::JournalError;
use tower_agent_durable::{Postgres, StoreError};

use super::breaking::World;
use crate::proxy::{Lost, Proxy};
use crate::support::server::Server;
use crate::support::{journal_error, request};

fn check(error: &Error) {
    let database = matches!(
        journal_error(error),
        JournalError::Store(StoreError::Database(_))
    );
    assert!(database, "{error}");
    assert!(
        error
            .message()
            .starts_with("the journal failed: the database failed: "),
        "{error}"
    );
    assert!(
        error.message().ends_with("it goes on where it stopped"),
        "{error}"
    );
    assert!(
        error.to_string().contains(" of agent `agent`: aborted: "),
        "{error}"
    );
}

async fn connect(server: &Server) -> (Arc<Proxy>, Postgres) {
    let proxy = Proxy::start(server.socket()).await;
    let url = format!(
        "postgres://postgres@{}/postgres?sslmode=disable",
        proxy.address
    );
    (Arc::new(proxy), Postgres::connect(&url).await.unwrap())
}

/// Makes a run that loses its connection at the commit of each of these operations.
async fn make(
    (proxy, database): &(Arc<Proxy>, Postgres),
    at: &[usize],
    lost: Lost,
) -> (World, Vec<String>) {
    let (world, runs) = (World::default(), database.runs());
    let (proxy, breaks_at) = (proxy.clone(), at.to_vec());
    let agent = world.agent(database.clone(), move |number| {
        if breaks_at.contains(&number) {
            proxy.lose(lost, || {});
        }
    });
    let mut failed = 0;
    let repair = async |error| {
        check(&error);
        failed += 1;
    };
    let transcript = world.finish(&agent, &runs, repair).await;
    assert!(
        failed > 0 || at.is_empty(),
        "{lost:?} at {at:?} of {:?}",
        world.operations()
    );
    runs.delete("run 1").await.unwrap();
    (world, transcript)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_outcome_is_unknown_counts_once() {
    let Some(server) = Server::start("unknown") else {
        return;
    };
    let connected = connect(&server).await;
    let (whole, expected) = make(&connected, &[], Lost::Request).await;
    let operations = whole.operations();
    let commits_charge = operations
        .iter()
        .position(|operation| operation == "commit charge")
        .unwrap();
    let (asks, _) = make(&connected, &[commits_charge], Lost::Request).await;
    for lost in [Lost::Request, Lost::Answer] {
        let once = (0..operations.len()).map(|at| vec![at]);
        // And again while it goes on with a call that was not finished.
        let twice =
            (commits_charge + 1..asks.operations().len()).map(|at| vec![commits_charge, at]);
        for at in once.chain(twice) {
            let (world, transcript) = make(&connected, &at, lost).await;
            let what = format!("{lost:?} lost at {at:?} of {:?}", world.operations());
            assert_eq!(transcript, expected, "{what}");
            assert_eq!(
                (world.times("charge"), world.times("pay")),
                (1, 1),
                "{what}"
            );
            let [at] = at[..] else { continue };
            let is_known = lost == Lost::Answer;
            match &*operations[at] {
                "commit model 1 0" => {
                    assert_eq!(
                        world.times("model 1 0"),
                        if is_known { 1 } else { 2 },
                        "{what}"
                    );
                }
                "commit pay" => assert_eq!(world.asked(), u32::from(!is_known), "{what}"),
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_server_is_killed_at_any_operation_goes_on_when_it_is_back() {
    let Some(server) = Server::start("killed-server") else {
        return;
    };
    let (proxy, database) = connect(&server).await;
    let (_, expected) = make(&(proxy.clone(), database.clone()), &[], Lost::Request).await;
    let server = Arc::new(Mutex::new(server));
    for (number, operation) in [
        "start",
        "begin model 1 0",
        "commit model 1 0",
        "begin charge",
        "commit charge",
        "begin pay",
        "release pay",
        "commit pay",
        "end",
    ]
    .into_iter()
    .enumerate()
    {
        let lost = if number % 2 == 0 {
            Lost::Request
        } else {
            Lost::Answer
        };
        let (world, runs) = (World::default(), database.runs());
        let (breaks, kills, seen) = (proxy.clone(), server.clone(), world.clone());
        let agent = world.agent(database.clone(), move |_| {
            let operations = seen.operations();
            let times = operations.iter().filter(|made| *made == operation).count();
            if times == 1 && operations.last().is_some_and(|last| last == operation) {
                let server = kills.clone();
                breaks.lose(lost, move || server.lock().unwrap().kill());
            }
        });
        let mut failed = 0;
        let repair = async |error| {
            check(&error);
            failed += 1;
            // Started while it is away, it does nothing.
            let made = world.made();
            check(&agent.run(request()).await.unwrap_err());
            assert_eq!(world.made(), made);
            server.lock().unwrap().resume();
        };
        let transcript = world.finish(&agent, &runs, repair).await;
        assert_eq!((failed, transcript), (1, expected.clone()), "{operation}");
        assert_eq!(
            (world.times("charge"), world.times("pay")),
            (1, 1),
            "{operation}"
        );
        runs.delete("run 1").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_back_before_the_next_operation_costs_the_run_nothing() {
    let Some(server) = Server::start("restarted") else {
        return;
    };
    let database = server.connect().await;
    let (world, server) = (World::default(), Mutex::new(server));
    let seen = world.clone();
    let agent = world.agent(database.clone(), move |_| {
        let operation = seen.operations().pop().unwrap();
        // Others are writing at the same time.
        if !operation.ends_with("look") && !operation.ends_with("charge") {
            let mut server = server.lock().unwrap();
            server.kill();
            server.resume();
        }
    });
    let failed = async |error| panic!("{error}");
    world.finish(&agent, &database.runs(), failed).await;
    for step in [
        "model 1 0",
        "look",
        "charge",
        "model 1 1",
        "pay",
        "model 2 2",
    ] {
        assert_eq!(world.times(step), 1, "{step}");
    }
}
