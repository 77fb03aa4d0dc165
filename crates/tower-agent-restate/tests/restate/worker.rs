//! A process that makes runs, each in a folder of its own.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use test_support::process::Process;
use tokio::net::TcpListener;
use tower::service_fn;
use tower_agent::{AgentRequest, Request};
use tower_agent_restate::{Engine, Worker};

use crate::support::fate::Fate;
use crate::support::world::World;

const PORT: &str = "TOWER_AGENT_TEST_RESTATE_PORT";
const INGRESS: &str = "TOWER_AGENT_TEST_RESTATE";
const FOLDER: &str = "TOWER_AGENT_TEST_RESTATE_FOLDER";
/// A run, and the point in it at which the process ends.
const KILL_AT: &str = "TOWER_AGENT_TEST_RESTATE_KILL_AT";

/// The program: it works until it is killed, if a test asks for it.
#[test]
fn a_process_that_makes_runs() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let engine = Engine::new(&std::env::var(INGRESS).unwrap()).unwrap();
    let kill_at = std::env::var(KILL_AT).ok().map(|at| {
        let (run, point) = at.rsplit_once(' ').unwrap();
        (run.to_owned(), point.to_owned())
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        let (folder, worlds) = (PathBuf::from(folder), Mutex::<HashMap<_, _>>::default());
        let (journal, worlds) = (engine.clone(), Arc::new(worlds));
        let agent = service_fn(move |request: AgentRequest| {
            let run = request.context().run_id().to_owned();
            let kill_at = kill_at.as_ref().filter(|(of, _)| *of == run);
            let fate = kill_at.map(|(_, point)| Fate::kill(point));
            let mut worlds = worlds.lock().unwrap();
            let world = worlds
                .entry(run.clone())
                .or_insert_with(|| World::new(&folder.join(run), fate));
            let (agent, budget) = world.agent(world.watching(journal.clone()));
            let world = world.clone();
            async move { world.make(&agent, &budget, request).await }
        });
        let _worker = Worker::builder(&engine)
            .agent("world", agent)
            .start(listener);
        println!("works");
        std::future::pending::<()>().await;
    });
}

/// Starts the program.
pub(crate) fn start(folder: &Path, ingress: &str, kill_at: Option<(&str, usize)>) -> Process {
    Process::start("works", |port| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "worker::a_process_that_makes_runs",
            "--nocapture",
        ]);
        command
            .env(FOLDER, folder)
            .env(INGRESS, ingress)
            .env(PORT, port.to_string());
        if let Some((run, point)) = kill_at {
            command.env(KILL_AT, format!("{run} {point}"));
        }
        command
    })
}
