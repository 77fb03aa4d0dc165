//! The engine as a journal.

use tower_agent_durable::journal::RunInfo;
use tower_agent_restate::Engine;

use super::server::Server;
use super::work;
use crate::support::conformance::keeps_runs;
use crate::support::place::{Place, Seen};

impl Seen for Engine {
    async fn info(&self, run: &str) -> RunInfo {
        self.info(run).await.unwrap()
    }
}

/// A server without runs.
struct Empty(Engine);

impl Empty {
    async fn new(engine: &Engine) -> Self {
        for run in 0..=Self::RACES {
            // Most were never there.
            let _ = engine.delete(&format!("run {run}")).await;
        }
        Self(engine.clone())
    }
}

impl Place for Empty {
    type Journal = Engine;
    const RACES: u32 = 20;

    async fn open(&self) -> Engine {
        self.0.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_runs_as_every_journal_does() {
    let Some(server) = Server::start("restate-conformance", &[]) else {
        return;
    };
    let engine = server.engine();
    let _worker = work(&server, &engine, []).await;
    keeps_runs(async || Empty::new(&engine).await).await;
}
