//! A database whose runs can be made to look lost.

use std::path::Path;

use tower::ServiceExt;
use tower_agent::AgentRequest;
use tower_agent::agent::AgentService;
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{RunQuery, RunStatus, Runs};
use tower_agent_test::ScriptedModel;

use crate::support::folder::Folder;

/// Lets a minute pass since the last sign of life of each run in a file.
pub(crate) async fn a_minute_later(file: &Path) {
    let file = format!("sqlite:{}", file.display());
    let other = sqlx::SqlitePool::connect(&file).await.unwrap();
    let change = "UPDATE tower_agent_runs SET updated_at = updated_at - 60000";
    sqlx::query(change).execute(&other).await.unwrap();
    other.close().await;
}

/// A database in a file, so that a test can make a run look lost.
pub(crate) struct Aged {
    pub(crate) database: Sqlite,
    folder: Folder,
}

impl Aged {
    pub(crate) async fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let database = Sqlite::open(folder.file("runs.db")).await.unwrap();
        Self { database, folder }
    }

    pub(crate) fn runs(&self) -> Runs {
        self.database.runs()
    }

    /// Lets a minute pass since the last sign of life of each run.
    pub(crate) async fn a_minute_later(&self) {
        a_minute_later(&self.folder.file("runs.db")).await;
    }

    pub(crate) async fn status(&self, run: &str) -> RunStatus {
        let all = self.runs().list(&RunQuery::new()).await.unwrap();
        let found = all.into_iter().find(|found| *found.id == *run);
        found.unwrap().status
    }

    /// Makes a run until its last model call hangs, and kills it then. A process that is killed
    /// writes nothing more, so that what its drop would store is not stored.
    pub(crate) async fn killed(
        &self,
        agent: impl AgentService,
        model: &ScriptedModel,
        request: AgentRequest,
    ) {
        let mut run = Box::pin(agent.oneshot(request));
        while model.requests().len() < 2 {
            assert!(futures::poll!(&mut run).is_pending());
            tokio::task::yield_now().await;
        }
        // Neither dropped nor polled any more.
        std::mem::forget(run);
        self.a_minute_later().await;
    }
}
