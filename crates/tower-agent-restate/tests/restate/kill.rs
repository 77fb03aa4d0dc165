//! Workers that are killed, and others that go on.

use std::net::SocketAddr;
use std::path::Path;

use futures::future::join_all;
use test_support::property::sample;
use tower_agent_durable::journal::RunEnd;
use tower_agent_restate::Engine;

use super::balancer::Balancer;
use super::server::Server;
use super::worker;
use crate::support::folder::Folder;
use crate::support::kills::{check_no_step_is_repeated, end, lines, spent};
use crate::support::world::{World, first_request};

/// Starts a run, answers what it waits for, and returns once it has completed.
async fn drive(engine: &Engine, folder: &Path, run: &str) {
    std::fs::create_dir_all(folder.join(run)).unwrap();
    let world = World::new(&folder.join(run), None);
    let mut handle = engine.start("world", first_request(run)).await.unwrap();
    loop {
        match handle.end().await.unwrap() {
            RunEnd::Completed { .. } => return,
            RunEnd::Waiting { .. } => {}
            end => panic!("{run}: {end:?}"),
        }
        let asked = engine.info(run).await.unwrap().interrupts;
        let answers: Vec<_> = asked
            .iter()
            .map(|interrupt| world.answer(interrupt))
            .collect();
        handle = engine.resume(run, answers).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_whose_worker_is_killed_ends_as_if_it_had_not_been() {
    let Some(server) = Server::start("restate-kill", &[]) else {
        return;
    };
    let (engine, balancer) = (server.engine(), Balancer::start().await);
    let root = Folder::new("restate-kill-runs");
    let root = root.file("");
    let survivor = worker::start(&root, &server.ingress(), None);
    balancer.point_to([survivor.address]);
    server.admin().register(balancer.address).await;
    drive(&engine, &root, "whole").await;

    let whole = root.join("whole");
    let (expected, budget) = (end(&whole), spent(&whole));
    let points = lines(&whole, "points").len();
    for point in (1..=points).step_by(sample(7, 1)) {
        let run = format!("run {point}");
        let victim = worker::start(&root, &server.ingress(), Some((&run, point)));
        balancer.point_to([victim.address, survivor.address]);
        drive(&engine, &root, &run).await;
        let folder = root.join(&run);
        let at = lines(&folder, "points").swap_remove(point - 1);
        assert_eq!(end(&folder), expected, "killed at `{at}`");
        check_no_step_is_repeated(&folder, &at);
        for (pass, spent) in spent(&folder) {
            if let Some(expected) = budget.get(&pass) {
                assert_eq!(&spent, expected, "pass {pass}, killed at `{at}`");
            }
        }
        // Whoever was killed while it changed something is asked about that.
        let has_changed = ["charge", "pay", "note"].map(|tool| format!("{point} {tool} has run"));
        assert!(
            !has_changed.contains(&at) || !lines(&folder, "asked").is_empty(),
            "{at}"
        );
    }
}

/// Has many runs made, kills a worker in one of them, and something else once the first waits.
async fn are_made_once(
    name: &str,
    ingress: &str,
    register: impl AsyncFnOnce(SocketAddr),
    kill: impl FnOnce(),
) {
    let (engine, balancer) = (Engine::new(ingress).unwrap(), Balancer::start().await);
    let root = Folder::new(name);
    let root = root.file("");
    let victim = worker::start(&root, ingress, Some(("run 6", 40)));
    let survivor = worker::start(&root, ingress, None);
    balancer.point_to([victim.address, survivor.address]);
    register(balancer.address).await;

    let names: Vec<_> = (1..=12).map(|run| format!("run {run}")).collect();
    names
        .iter()
        .for_each(|run| std::fs::create_dir_all(root.join(run)).unwrap());
    let first = engine.start("world", first_request("run 1")).await.unwrap();
    let drives = names.iter().map(|run| drive(&engine, &root, run));
    let killed = async {
        first.end().await.unwrap();
        kill();
    };
    tokio::join!(join_all(drives), killed);
    let expected = end(&root.join("run 1"));
    for run in &names {
        assert_eq!(end(&root.join(run)), expected, "{run}");
        check_no_step_is_repeated(&root.join(run), run);
    }
}

#[tokio::test]
async fn runs_whose_worker_and_server_are_killed_are_made_once() {
    let Some(mut server) = Server::start("restate-many", &[]) else {
        return;
    };
    let (ingress, admin) = (server.ingress(), server.admin());
    let kill = || {
        server.kill();
        server.resume();
    };
    are_made_once(
        "restate-many-runs",
        &ingress,
        async |at| admin.register(at).await,
        kill,
    )
    .await;
}

#[tokio::test]
async fn runs_of_a_cluster_that_loses_a_node_are_made_once() {
    let Some([mut lost, one, other]) = Server::start_cluster() else {
        return;
    };
    let balancer = Balancer::start().await;
    balancer.point_to([&lost, &one, &other].map(Server::ingress_address));
    let (ingress, admin) = (format!("http://{}", balancer.address), lost.admin());
    let register = async |at| admin.register(at).await;
    are_made_once("restate-cluster", &ingress, register, || lost.kill()).await;
}
