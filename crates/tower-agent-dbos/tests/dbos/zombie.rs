//! A worker that was taken for dead.

use tower_agent_durable::journal::RunKey;

use super::Cluster;
use super::kill::complete;
use super::process::{Process, Program};
use crate::support::fate::Fate;
use crate::support::folder::Folder;
use crate::support::kills::lines;
use crate::support::world::RUN;

/// All that is kept of the run, with the times at which it was written.
async fn kept(cluster: &Cluster) -> String {
    let (runs, engine) = (cluster.journal.runs(), &cluster.engine);
    let (run, steps) = (runs.get(RUN).await.unwrap(), runs.steps(RUN).await.unwrap());
    let end = engine.get(RUN).await.unwrap().end().await.unwrap();
    format!(
        "{run:#?} {steps:#?} {}",
        serde_json::to_string(&end).unwrap()
    )
}

/// Stops a worker at a point, has another complete the run, and lets the first go on.
async fn goes_on(at: &str) {
    let cluster = Cluster::start().await.unwrap();
    let folder = Folder::new(&format!("dbos-zombie-{}", at.replace(' ', "-")));
    let root = folder.file("");
    let mut zombie = Process::start(
        &cluster,
        &root,
        Program::World,
        "zombie",
        Some(Fate::stop(at)),
    );
    let take_over = async {
        assert_eq!(zombie.report().await, format!("stops at {at}"));
        let other = Process::start(&cluster, &root, Program::World, "other", None);
        assert_eq!(
            cluster.engine.take_over("zombie").await.unwrap(),
            [RunKey::from(RUN)]
        );
        other
    };
    let (other, ()) = tokio::join!(take_over, complete(&cluster, &root));
    other.end().await;
    let (kept_then, points_then) = (kept(&cluster).await, lines(&root, "points").len());

    zombie.go_on();
    let why = zombie.report().await;
    assert!(
        why.contains("run `run 1` was taken over by another process"),
        "{why}, at `{at}`"
    );
    zombie.end().await;
    let points = lines(&root, "points").split_off(points_then);
    assert_eq!(kept(&cluster).await, kept_then, "{points:#?}, at `{at}`");
    let mut changed: Vec<_> = lines(&root, "done");
    changed.retain_mut(|line| {
        let made = line
            .strip_prefix("made ")
            .and_then(|made| made.split(' ').next());
        let Some(tool @ ("charge" | "note" | "pay")) = made else {
            return false;
        };
        *line = tool.to_owned();
        true
    });
    changed.sort();
    assert_eq!(changed, ["charge", "note", "pay"], "{points:#?}, at `{at}`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_goes_on_after_another_has_its_run_writes_nothing_and_calls_nothing() {
    let Some(_cluster) = Cluster::start().await else {
        return;
    };
    let points = [
        // Before it has done anything.
        "a run has started",
        // In a call of a model, and when it has changed something.
        "a model streams",
        "charge has run",
        // When it has done what it was to do.
        "a run ends",
    ];
    futures::future::join_all(points.map(goes_on)).await;
}
