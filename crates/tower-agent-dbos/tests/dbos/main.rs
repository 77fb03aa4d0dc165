//! Durable runs on several machines, with DBOS in a real PostgreSQL.

mod answers;
#[path = "../../../tower-agent-durable/tests/support/clerks.rs"]
mod clerks;
mod kill;
mod killed_answers;
mod policy;
mod process;
mod refusals;
mod requests;
mod spread;
#[path = "../../../tower-agent-durable/tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests of the databases use the rest")]
mod support;
mod users;
#[path = "../../../tower-agent-policy/tests/support/workers.rs"]
mod workers;
mod zombie;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tower_agent_dbos::{DbosError, Engine};
use tower_agent_durable::Postgres;
use tower_agent_durable::journal::{JournalError, RunEnd};

use crate::support::server::Server;

/// A database of a test's own, with a journal, and an engine that is connected to it.
struct Cluster {
    url: String,
    journal: Postgres,
    engine: Engine,
    name: String,
    server: Arc<Server>,
}

impl Cluster {
    /// Starts one, if PostgreSQL is installed.
    async fn start() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        let name = format!("dbos_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.create(&name);
        let (url, journal) = (server.url(&name), server.connect_to(&name).await);
        let engine = Engine::connect(&url, journal.runs()).await.unwrap();
        Some(Self {
            url,
            journal,
            engine,
            name,
            server,
        })
    }

    /// Returns what a statement returns.
    fn query(&self, sql: &str) -> String {
        self.server.query_in(&self.name, sql)
    }
}

/// Returns the server that the tests share which run at the same time.
fn server() -> Option<Arc<Server>> {
    static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SERVER.lock().unwrap();
    let server = shared
        .upgrade()
        .or_else(|| Server::start("dbos").map(Arc::new))?;
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// Returns the text of the last message.
fn text(end: &RunEnd) -> String {
    let RunEnd::Completed { checkpoint, .. } = end else {
        panic!("{end:?}")
    };
    checkpoint.messages.iter().next_back().unwrap().text()
}

fn journal_error(error: &DbosError) -> &JournalError {
    let DbosError::Journal(error) = error else {
        panic!("{error}")
    };
    error
}
