//! Workers that are processes of their own.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tower_agent::stream::EventKind;
use tower_agent_dbos::{Engine, Worker, WorkerBuilder};
use tower_agent_durable::Postgres;

use super::{Cluster, spread};
use crate::support::fate::{self, Fate, report};
use crate::support::world::World;

const PROGRAM: &str = "TOWER_AGENT_TEST_PROGRAM";
const FOLDER: &str = "TOWER_AGENT_TEST_FOLDER";
const DATABASE: &str = "TOWER_AGENT_TEST_DATABASE";
const WORKER: &str = "TOWER_AGENT_TEST_WORKER";
const FATE: &str = "TOWER_AGENT_TEST_FATE";

/// The runs that a worker executes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// The run with everything in it.
    World,
    /// Many small ones.
    Clerk,
}

/// A worker, which is killed at the end.
pub(super) struct Process {
    folder: PathBuf,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts one.
    pub(super) fn start(
        cluster: &Cluster,
        folder: &Path,
        program: Program,
        worker: &str,
        fate: Option<Fate>,
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::a_worker"]);
        command
            .env(PROGRAM, format!("{program:?}"))
            .env(FOLDER, folder);
        command.env(DATABASE, &cluster.url).env(WORKER, worker);
        if let Some(fate) = fate {
            command.env(FATE, fate.to_string());
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            folder: folder.to_owned(),
            child,
            lines,
        }
    }

    /// Waits until it has ended by itself.
    pub(super) async fn ended(mut self) -> ExitStatus {
        // Waiting closes its input.
        let input = self.child.stdin.take();
        let status = self.child.wait().await.unwrap();
        drop(input);
        status
    }

    /// Returns what it reports next.
    pub(super) async fn report(&mut self) -> String {
        loop {
            let line = self.lines.next_line().await.unwrap().expect("it has ended");
            if let Some(report) = line.strip_prefix('#') {
                return report.to_owned();
            }
        }
    }

    /// Lets it go on that has reported that it stops.
    pub(super) fn go_on(&self) {
        fate::go_on(&self.folder, self.child.id().unwrap());
    }

    /// Ends it in good order.
    pub(super) async fn end(mut self) {
        // Waiting closes its input, which it reads to the end.
        assert!(self.child.wait().await.unwrap().success());
    }
}

/// The program: it works until its input ends, if a test asks for it.
#[test]
fn a_worker() {
    let Ok(program) = std::env::var(PROGRAM) else {
        return;
    };
    let var = |name: &str| std::env::var(name).unwrap();
    let folder = var(FOLDER);
    let fate = std::env::var(FATE).ok().map(|fate| fate.parse().unwrap());
    let work = async {
        let journal = Postgres::connect(&var(DATABASE)).await.unwrap();
        let engine = Engine::connect(&var(DATABASE), journal.runs())
            .await
            .unwrap();
        let world = World::new(Path::new(&folder), fate);
        let worker = Worker::builder(&engine, var(WORKER));
        let worker: WorkerBuilder = match &*program {
            "World" => {
                let agent = world.agent(world.watching(journal)).0;
                worker
                    .agent(agent)
                    .on_event(async |_, event| match event.kind {
                        EventKind::RunFailed { error } => report(&error.to_string()),
                        EventKind::RunInterrupted { .. } => report("interrupted"),
                        EventKind::RunFinished { .. } => report("finished"),
                        _ => {}
                    })
            }
            _ => worker
                .agent(spread::clerk(world, &var(WORKER), journal))
                .concurrency(3),
        };
        let worker = worker.start().await.unwrap();
        tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop))
            .await
            .unwrap();
        worker.stop().await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
}
