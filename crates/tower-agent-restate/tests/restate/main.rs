//! Runs on several machines through a real Restate server.

mod answers;
mod balancer;
#[path = "../../../tower-agent-durable/tests/support/clerks.rs"]
mod clerks;
mod conformance;
mod kill;
mod killed_answers;
mod policy;
mod rules;
mod server;
#[path = "../../../tower-agent-durable/tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests of the databases use the rest")]
mod support;
mod trust;
mod unreachable;
mod worker;
#[path = "../../../tower-agent-policy/tests/support/workers.rs"]
mod workers;

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tower_agent::Agent;
use tower_agent_restate::{Engine, Worker, WorkerBuilder};

use self::server::Server;

/// Starts a worker in this process.
async fn serve(engine: &Engine, agents: impl IntoIterator<Item = Agent>) -> (Worker, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let add = |worker: WorkerBuilder, agent: Agent| worker.agent(agent.name().to_owned(), agent);
    (
        agents
            .into_iter()
            .fold(Worker::builder(engine), add)
            .start(listener),
        address,
    )
}

/// Likewise, and registers it.
async fn work(server: &Server, engine: &Engine, agents: impl IntoIterator<Item = Agent>) -> Worker {
    let (worker, address) = serve(engine, agents).await;
    server.admin().register(address).await;
    worker
}
