//! Everything that a database has of one user.

use serde::Serialize;
use serde_json::Value as Json;

#[cfg(feature = "postgres")]
use crate::database::Postgres;
#[cfg(feature = "sqlite")]
use crate::database::Sqlite;
use crate::database::{Durability, Row, Sql, Wait, to_end};
use tower_agent_conversations::StoreError;
use tower_agent_conversations::{ConversationQuery, ConversationStore};

/// Everything that a database has of one user, to be handed over; created by
/// `Sqlite::export_user` and `Postgres::export_user`.
///
/// It serialises. The stored forms in it are for people to read, and no input of this crate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UserData {
    /// The sessions and threads, the latest first.
    pub sessions: Vec<UserSession>,
    /// The durable runs, the latest first.
    pub runs: Vec<UserRun>,
    /// The runs that a console has watched, the latest first.
    pub watched: Vec<UserWatchedRun>,
}

/// A session or a thread in [`UserData`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UserSession {
    /// The application, or the server of a thread.
    pub app: String,
    /// The session or the thread.
    pub session: String,
    /// `session` or `thread`.
    pub kind: String,
    /// The time of the last write, in milliseconds since 1970.
    pub updated_at: i64,
    /// The stored head.
    pub head: Json,
    /// The stored entries.
    pub entries: Vec<Json>,
}

/// A durable run in [`UserData`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UserRun {
    /// The id.
    pub run: String,
    /// The outermost agent.
    pub agent: String,
    /// The time of the first start, in milliseconds since 1970.
    pub started_at: i64,
    /// The requests, without their messages.
    pub requests: Vec<Json>,
    /// The messages of the latest request that are in no session.
    pub messages: Vec<Json>,
    /// The stored results of the steps.
    pub steps: Vec<Json>,
    /// The current end of a run that waits or has failed.
    pub end: Option<Json>,
}

/// A run that a console has watched, in [`UserData`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UserWatchedRun {
    /// The line that the console's list shows of it.
    pub summary: Json,
    /// Everything that happened in it.
    pub entries: Vec<Json>,
    /// The texts of its entries, as far as they were recorded.
    pub texts: Vec<Json>,
    /// Its calls as a whole, as far as they were recorded.
    pub calls: Vec<Json>,
}

const RUNS: &str = "\
    SELECT id, run, agent, started_at, ended FROM tower_agent_runs WHERE owner = $1 \
    ORDER BY started_at DESC, run";

const REQUESTS: &str = "SELECT request FROM tower_agent_run_inputs WHERE run = $1 ORDER BY number";

const MESSAGES: &str =
    "SELECT message FROM tower_agent_run_messages WHERE run = $1 ORDER BY position";

const STEPS: &str = "\
    SELECT record FROM tower_agent_run_steps WHERE run = $1 AND record IS NOT NULL \
    ORDER BY position";

const WATCHED: &str = "\
    SELECT row_id, summary FROM tower_agent_console_runs WHERE owner = $1 \
    ORDER BY begun DESC, console, number DESC";

const ENTRIES: &str =
    "SELECT entry FROM tower_agent_console_entries WHERE run = $1 ORDER BY position";

const TEXTS: &str = "\
    SELECT texts FROM tower_agent_console_entries WHERE run = $1 AND texts IS NOT NULL \
    ORDER BY position";

const CALLS: &str = "\
    SELECT whole FROM tower_agent_console_entries WHERE run = $1 AND whole IS NOT NULL \
    ORDER BY position";

const DELETE_SESSIONS: &str = "DELETE FROM tower_agent_conversations WHERE owner = $1";

const DELETE_WATCHED: &str = "DELETE FROM tower_agent_console_runs WHERE owner = $1";

const DELETE_RUNS: &str = "DELETE FROM tower_agent_runs WHERE owner = $1";

async fn export<D: Sql + ConversationStore>(
    database: &D,
    user: &str,
) -> Result<UserData, StoreError> {
    check(user)?;
    Ok(UserData {
        sessions: sessions(database, user).await?,
        runs: runs(database, user).await?,
        watched: watched(database, user).await?,
    })
}

async fn sessions(
    database: &impl ConversationStore,
    user: &str,
) -> Result<Vec<UserSession>, StoreError> {
    let mut query = ConversationQuery::new().user(user);
    let mut sessions = Vec::new();
    loop {
        let page = database.list(&query).await?;
        let Some(last) = page.last() else {
            return Ok(sessions);
        };
        query = query.after(last);
        for info in page {
            // Deleted or expired since the list was read.
            let Some(stored) = database.load(&info.key, 0).await? else {
                continue;
            };
            sessions.push(UserSession {
                app: info.key.app.to_string(),
                session: info.key.id.to_string(),
                kind: info.kind.to_string(),
                updated_at: crate::time::millis(info.updated_at),
                head: json(&stored.head)?,
                entries: all_json(stored.entries.iter().map(String::as_str))?,
            });
        }
    }
}

async fn runs(database: &impl Sql, user: &str) -> Result<Vec<UserRun>, StoreError> {
    let rows = database.read(RUNS, &[user.into()]).await?;
    let mut runs = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: i64 = row.number("id")?;
        runs.push(UserRun {
            run: row.text("run")?.to_owned(),
            agent: row.text("agent")?.to_owned(),
            started_at: row.number("started_at")?,
            requests: column(database.read(REQUESTS, &[id.into()]).await?, "request")?,
            messages: column(database.read(MESSAGES, &[id.into()]).await?, "message")?,
            steps: column(database.read(STEPS, &[id.into()]).await?, "record")?,
            end: row.optional_text("ended")?.map(json).transpose()?,
        });
    }
    Ok(runs)
}

async fn watched(database: &impl Sql, user: &str) -> Result<Vec<UserWatchedRun>, StoreError> {
    let rows = database.read(WATCHED, &[user.into()]).await?;
    let mut watched = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: i64 = row.number("row_id")?;
        watched.push(UserWatchedRun {
            summary: json(row.text("summary")?)?,
            entries: column(database.read(ENTRIES, &[id.into()]).await?, "entry")?,
            texts: column(database.read(TEXTS, &[id.into()]).await?, "texts")?,
            calls: column(database.read(CALLS, &[id.into()]).await?, "whole")?,
        });
    }
    Ok(watched)
}

pub(crate) async fn delete(database: &dyn Sql, user: &str) -> Result<u64, StoreError> {
    check(user)?;
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    let sessions = tx.execute(DELETE_SESSIONS, &[user.into()]).await?;
    let runs = tx.execute(DELETE_RUNS, &[user.into()]).await?;
    let watched = tx.execute(DELETE_WATCHED, &[user.into()]).await?;
    tx.commit().await?;
    database.wipe().await;
    Ok(sessions + runs + watched)
}

/// Fails for the name of nobody, under which the data of all those without a name is stored.
fn check(user: &str) -> Result<(), StoreError> {
    if user.is_empty() {
        return Err(StoreError::data("a user must not be empty"));
    }
    ConversationQuery::new().user(user).check()
}

fn json(text: &str) -> Result<Json, StoreError> {
    serde_json::from_str(text).map_err(StoreError::data)
}

fn all_json<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Vec<Json>, StoreError> {
    texts.map(json).collect()
}

fn column(rows: Vec<Row>, name: &str) -> Result<Vec<Json>, StoreError> {
    rows.iter().map(|row| json(row.text(name)?)).collect()
}

// A macro, as for the journal: a trait for both databases would be one more public name.
macro_rules! has_users {
    ($database:ty) => {
        impl $database {
            /// Returns everything that the database has of a user: sessions, threads, durable runs
            /// and the runs that a console has watched.
            ///
            /// A run has the user of its [key](crate::journal::RunKey), its session or its thread;
            /// one that was started without belongs to nobody.
            ///
            /// # Errors
            ///
            /// Fails if the database does, and if the user is an empty text.
            pub async fn export_user(&self, user: &str) -> Result<UserData, StoreError> {
                export(self, user).await
            }

            /// Deletes everything that the database has of a user: sessions, threads, durable runs
            /// and the runs that a console has watched. Returns their number.
            ///
            /// Runs that are active stop at their next write, which fails.
            ///
            /// # Errors
            ///
            /// Fails if the database does, and if the user is an empty text. Nothing is deleted
            /// then.
            pub async fn delete_user(&self, user: &str) -> Result<u64, StoreError> {
                let database = self.clone();
                let user = user.to_owned();
                to_end(async move { delete(&database, &user).await }).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
has_users!(Sqlite);
#[cfg(feature = "postgres")]
has_users!(Postgres);
