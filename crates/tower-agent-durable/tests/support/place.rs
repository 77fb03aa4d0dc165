//! Where the runs of a test are: in a file, or on a server.

use std::sync::atomic::{AtomicU32, Ordering};

use tower_agent_durable::journal::{Journal, RunInfo, Runs};
use tower_agent_durable::{Postgres, Sqlite};

use crate::support::folder::Folder;
use crate::support::server::Server;

/// A place of a database, which may be opened several times, as by several processes.
pub(crate) trait Place {
    type Journal: Seen;
    /// How many races there are to see.
    const RACES: u32 = 60;

    async fn open(&self) -> Self::Journal;
}

pub(crate) trait Seen: Journal {
    async fn info(&self, run: &str) -> RunInfo;
}

pub(crate) trait Database: Seen {
    fn runs(&self) -> Runs;
}

impl Seen for Sqlite {
    async fn info(&self, run: &str) -> RunInfo {
        self.runs().get(run).await.unwrap()
    }
}

impl Database for Sqlite {
    fn runs(&self) -> Runs {
        self.runs()
    }
}

impl Seen for Postgres {
    async fn info(&self, run: &str) -> RunInfo {
        self.runs().get(run).await.unwrap()
    }
}

impl Database for Postgres {
    fn runs(&self) -> Runs {
        self.runs()
    }
}

/// Returns a number that was not given before.
pub(crate) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A file.
pub(crate) struct InFile(Folder);

impl InFile {
    pub(crate) fn new() -> Self {
        Self(Folder::new(&format!("place-{}", number())))
    }
}

impl Place for InFile {
    type Journal = Sqlite;

    async fn open(&self) -> Sqlite {
        Sqlite::open(self.0.file("runs.db")).await.unwrap()
    }
}

/// A database of its own.
pub(crate) struct OnServer<'a>(&'a Server, String);

impl<'a> OnServer<'a> {
    pub(crate) fn new(server: &'a Server) -> Self {
        let name = format!("place_{}", number());
        server.create(&name);
        Self(server, name)
    }
}

impl Place for OnServer<'_> {
    type Journal = Postgres;

    async fn open(&self) -> Postgres {
        self.0.connect_to(&self.1).await
    }
}
