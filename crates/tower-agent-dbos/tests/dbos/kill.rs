//! A worker that is killed, and another that goes on with its run.

use std::collections::BTreeMap;
use std::path::Path;

use tower_agent_durable::journal::{RunEnd, RunKey};

use super::process::{Process, Program};
use super::{Cluster, text};
use crate::support::fate::Fate;
use crate::support::folder::Folder;
use crate::support::kills::{check_no_step_is_repeated, check_questions, end, lines};
use crate::support::world::{RUN, World, first_request};

/// Starts the run and answers what it waits for, until it has completed.
pub(super) async fn complete(cluster: &Cluster, folder: &Path) {
    let world = World::new(folder, None);
    let mut run = cluster
        .engine
        .start("boss", first_request(RUN))
        .await
        .unwrap();
    loop {
        match run.end().await.unwrap() {
            RunEnd::Waiting { checkpoint, .. } => {
                let answers: Vec<_> = checkpoint
                    .head
                    .interrupts
                    .iter()
                    .map(|interrupt| world.answer(interrupt))
                    .collect();
                run = cluster.engine.resume(RUN, answers).await.unwrap();
            }
            done => {
                assert_eq!(text(&done), "Well. All done.");
                let RunEnd::Completed { checkpoint, state } = done else {
                    return;
                };
                return world.write_end(&checkpoint.messages, &state).unwrap();
            }
        }
    }
}

/// Completes the run while a worker is killed at a point, and another takes over. Returns the
/// points of the first.
async fn complete_with_a_kill(cluster: &Cluster, folder: &Path, at: &str) -> Vec<String> {
    let first = Process::start(
        cluster,
        folder,
        Program::World,
        "first",
        Some(Fate::kill(at)),
    );
    let take_over = async {
        assert!(
            !first.ended().await.success(),
            "it was not killed at `{at}`"
        );
        let points = lines(folder, "points");
        let other = Process::start(cluster, folder, Program::World, "other", None);
        let runs = cluster.engine.take_over("first").await.unwrap();
        assert_eq!(runs, [RunKey::from(RUN)], "killed at `{at}`");
        assert!(cluster.engine.take_over("first").await.unwrap().is_empty());
        (other, points)
    };
    let ((other, points), ()) = tokio::join!(take_over, complete(cluster, folder));
    other.end().await;
    points
}

/// The cost of each pass from one message to another.
fn passes(folder: &Path) -> BTreeMap<String, String> {
    let passes = lines(folder, "passes").into_iter();
    passes
        .map(|line| {
            line.split_once(' ')
                .map(|(at, amount)| (at.into(), amount.into()))
                .unwrap()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_worker_is_killed_ends_as_if_it_had_not_been() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let whole = Folder::new("dbos-killed-never");
    let worker = Process::start(&cluster, &whole.file(""), Program::World, "first", None);
    complete(&cluster, &whole.file("")).await;
    worker.end().await;
    let (expected, budget) = (end(&whole.file("")), passes(&whole.file("")));

    let points = [
        // In the first answer, which is streamed.
        "a model streams",
        // Beside a sub-agent and another tool, before and after it has changed something.
        "charge is called",
        "charge has run",
        // In the sub-agent, while a call begins that waits for an approval, and when it has that.
        "has begun 1 tool boss/m1.2/worker/m1.0",
        "note has run",
    ];
    let kills = points.map(|at| {
        let (expected, budget) = (&expected, &budget);
        async move {
            let cluster = Cluster::start().await.unwrap();
            let folder = Folder::new(&format!("dbos-{}", at.replace([' ', '/'], "-")));
            let root = folder.file("");
            let points = complete_with_a_kill(&cluster, &root, at).await;
            assert_eq!(&end(&root), expected, "killed at `{at}`");
            check_no_step_is_repeated(&root, at);
            check_questions(&root, &points, at);
            let spent = passes(&root);
            // A pass in which it had to ask has no counterpart.
            for (pass, spent) in spent.iter().filter(|(pass, _)| budget.contains_key(*pass)) {
                assert_eq!(
                    Some(spent),
                    budget.get(pass),
                    "pass {pass}, killed at `{at}`"
                );
            }
            let has_asked = !lines(&root, "asked").is_empty();
            assert!(has_asked || spent == *budget, "{spent:?}, killed at `{at}`");
        }
    });
    futures::future::join_all(kills).await;
}
