//! A worker is killed by the system that takes an answer. Another one goes on: it is paid once, for
//! the right user, and everybody is told.

use std::path::PathBuf;

use futures::future::join_all;
use tower_agent_dbos::{Engine, Worker};
use tower_agent_durable::Postgres;
use tower_agent_durable::journal::RunKey;

use super::Cluster;
use super::clerks::{pays_once, stopping};
use crate::support::folder::Folder;
use crate::support::stops::{Point, Stops, Victim};

const FOLDER: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS";
const DATABASE: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS_DATABASE";
const POINT: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS_POINT";

/// The worker: it takes the answer, and stops at its point.
#[test]
fn a_worker_that_takes_an_answer() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let url = std::env::var(DATABASE).unwrap();
    let point: usize = std::env::var(POINT).unwrap().parse().unwrap();
    let stops = Stops::paying_into(&PathBuf::from(folder), Some(Point::ALL[point]));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        stops.come(Point::Given).await;
        let journal = Postgres::connect(&url).await.unwrap();
        let engine = Engine::connect(&url, journal.runs()).await.unwrap();
        let worker = Worker::builder(&engine, "victim").agent(stopping(&stops, &journal));
        let _worker = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// Kills the worker at a point.
async fn one(point: usize) {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let Cluster {
        engine, journal, ..
    } = &cluster;
    let folder = Folder::new(&format!("dbos-killed-answers-{point}"));
    let root = folder.file("");
    let key = RunKey::new("run 1").of("ada");
    let go_on = async |key: &RunKey, next: Result<_, Vec<_>>| {
        let run = match next {
            Ok(request) => engine.start("clerk", request).await,
            Err(answers) => engine.resume(key, answers).await,
        };
        let run = run.map_err(|error| error.to_string())?;
        run.end().await.map_err(|error| error.to_string())
    };
    let work = async |name: &str| {
        let agent = stopping(&Stops::paying_into(&root, None), journal);
        let worker = Worker::builder(engine, name).agent(agent);
        worker.start().await.unwrap()
    };
    let first = work("first").await;
    let asked = go_on(&key, Ok(key.request("Pay."))).await.unwrap();
    first.stop().await.unwrap();

    let variables = [
        (FOLDER, root.clone().into()),
        (DATABASE, cluster.url.clone().into()),
        (POINT, point.to_string().into()),
    ];
    let (goes_on, has_ended) = tokio::sync::oneshot::channel();
    let kill = async {
        let victim = tokio::task::spawn_blocking(move || {
            Victim::start("killed_answers::a_worker_that_takes_an_answer", &variables)
        });
        drop(victim.await.unwrap());
        let survivor = work("survivor").await;
        engine.take_over("victim").await.unwrap();
        assert!(goes_on.send(survivor).is_ok());
    };
    let look = async |key: &RunKey| engine.get(key).await.unwrap().end().await.unwrap();
    pays_once(&key, Point::ALL[point], &root, &asked, kill, go_on, look).await;
    has_ended.await.unwrap().stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_worker_is_killed_counts_once() {
    join_all((0..Point::ALL.len()).map(one)).await;
}
