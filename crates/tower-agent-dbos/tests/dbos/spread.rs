//! Many runs that several workers share.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, ModelRequest, ModelResponse, Request, Resolution, Role,
    Tool, ToolRequest,
};
use tower_agent_durable::Postgres;
use tower_agent_durable::journal::{Durable, RunQuery, UnfinishedStep};

use super::process::{Process, Program};
use super::{Cluster, text};
use crate::support::fate::Fate;
use crate::support::folder::Folder;
use crate::support::kills::lines;
use crate::support::world::World;

const RUNS: usize = 30;

/// An agent that pays once in each run, and writes down which worker did.
pub(super) fn clerk(world: World, worker: &str, journal: Postgres) -> Agent {
    let model = service_fn(async |request: ModelRequest| {
        let has_paid = request
            .messages()
            .iter()
            .any(|message| message.role() == Role::Tool);
        Ok::<_, BoxError>(if has_paid {
            ModelResponse::from_text("Paid.")
        } else {
            ModelResponse::from_tool_calls([ToolCall::new("c1", "pay", json!({}))])
        })
    });
    let worker = worker.to_owned();
    let pay = move |_: Value, request: ToolRequest| {
        let (world, worker) = (world.clone(), worker.clone());
        async move {
            world.write("paid", &format!("{worker} {}", request.context().run_id()));
            let count = lines(world.folder(), "paid")
                .into_iter()
                .filter(|line| line.starts_with(&*worker));
            world.point(&format!("paid {}", count.count())).await;
            "paid"
        }
    };
    Agent::builder(model)
        .name("clerk")
        .tool(Tool::function_with("pay", "Pays.", pay).effect(Effect::Mutating))
        .global_callbacks(Durable::new(journal))
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_end_once_although_one_of_two_workers_is_killed() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let folder = Folder::new("dbos-many");
    let root = folder.file("");
    let runs: Vec<_> = (0..RUNS).map(|number| format!("run {number}")).collect();
    let starts = runs.iter().map(|run| {
        cluster
            .engine
            .start("clerk", AgentRequest::new("Pay.").with_run_id(run.as_str()))
    });
    let started = join_all(starts).await;
    let first = Process::start(
        &cluster,
        &root,
        Program::Clerk,
        "first",
        Some(Fate::kill("paid 5")),
    );
    let other = Process::start(&cluster, &root, Program::Clerk, "other", None);
    let take_over = async {
        assert!(!first.ended().await.success());
        cluster.engine.take_over("first").await.unwrap()
    };
    let asked = join_all(started.into_iter().map(async |run| {
        let mut run = run.unwrap();
        let mut asked = 0;
        loop {
            let end = run.end().await.unwrap();
            let [interrupt] = end.interrupts() else {
                assert_eq!(text(&end), "Paid.");
                return asked;
            };
            // Whoever keeps the payments looks whether it was made.
            assert_eq!(interrupt.reason, UnfinishedStep::REASON);
            let id = run.run_id().to_owned();
            let was_paid = lines(&root, "paid")
                .iter()
                .any(|line| line.ends_with(&format!(" {id}")));
            let answer = if was_paid {
                UnfinishedStep::Done(json!("paid"))
            } else {
                UnfinishedStep::RunAgain
            };
            asked += 1;
            run = cluster
                .engine
                .resume(&id, [Resolution::resolved(&interrupt.id, answer)])
                .await
                .unwrap();
        }
    }));
    let (taken, asked) = tokio::join!(take_over, asked);
    other.end().await;

    let mut paid = BTreeMap::<_, usize>::new();
    let paying: Vec<_> = lines(&root, "paid");
    for line in &paying {
        *paid
            .entry(line.split_once(' ').unwrap().1.to_owned())
            .or_default() += 1;
    }
    assert_eq!(paid.len(), RUNS);
    assert!(paid.values().all(|count| *count == 1), "{paid:?}");
    let workers: BTreeSet<_> = paying
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(Vec::from_iter(workers), ["first", "other"]);
    // No more than it was making, of which it was asked about each.
    let asked: usize = asked.into_iter().sum();
    assert!(
        (1..=3).contains(&taken.len()) && asked <= taken.len(),
        "{taken:?}, {asked} asked"
    );
    let known = cluster
        .journal
        .runs()
        .list(&RunQuery::new().limit(1_000))
        .await
        .unwrap();
    assert_eq!(known.len(), RUNS);
}
