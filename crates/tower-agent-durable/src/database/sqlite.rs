use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::migrations::{SQLITE, migrate};
use super::or_failure::{OrFailure, is_busy, is_locked};
use super::sql::{Dialect, Durability, Row, Sql, Transaction, Value, Wait, query};
use tower_agent_conversations::StoreError;

/// The default time for which a write waits for others.
const WAIT: Duration = Duration::from_secs(10);

/// The default number of connections that read.
const READERS: u32 = 4;

/// An SQLite database: a file, or memory. It is not encrypted: see
/// [how to encrypt the disk](crate::guide::deployment#encryption).
///
/// A finished write is on disk: neither a killed process nor a power cut loses it. Writers take
/// turns, and readers do not wait for them. Clones share the connections.
///
/// What is deleted is overwritten in the file and its log. Copies that were made before, such as
/// backups, still have it.
///
/// Several processes of one machine may open the same file. For several machines use
/// [`Postgres`](crate::Postgres): a file on a network drive is not safe. A process that is stalled
/// while it writes keeps the others out, whose writes fail after 10 seconds, until it continues or
/// ends. A durable run that holds a result waits as long as it takes.
///
/// ```
/// use tower_agent_durable::Sqlite;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let file = std::env::temp_dir().join(format!("tower-agent-{}.db", std::process::id()));
/// let database = Sqlite::open(&file).await?;
/// # database.close().await;
/// # std::fs::remove_file(&file)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
    /// The turns of journals, which do not time out.
    turns: Arc<Semaphore>,
}

impl Sqlite {
    /// Opens a file, and creates it and its tables if they do not exist.
    ///
    /// On Unix, a file that is created can be read and written by its owner alone, with its log: it
    /// contains conversations and private state as they are. The permissions of a file that exists
    /// stay as they are.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, or was written by a newer version of this crate.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options().open(path).await
    }

    /// Returns the settings with which a file is opened.
    pub fn options() -> SqliteOptions {
        SqliteOptions {
            readers: READERS,
            wait: WAIT,
        }
    }

    /// Creates a database in memory, which is gone with its last clone.
    ///
    /// # Errors
    ///
    /// Fails if the tables cannot be created.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // A database in memory belongs to one connection and ends with it: there must be exactly
        // one, which is never replaced.
        let one = one_writer(WAIT)
            .min_connections(1)
            .max_lifetime(None)
            .idle_timeout(None);
        // sqlx closes a connection whose test is dropped halfway, and the data would go with it.
        let one = one.test_before_acquire(false);
        let writer = open_writer(&one, &options(WAIT).in_memory(true)).await?;
        Self::migrated(writer.clone(), writer).await
    }

    /// Returns the database of these connections, with its tables.
    async fn migrated(writer: SqlitePool, readers: SqlitePool) -> Result<Self, StoreError> {
        let database = Self {
            writer,
            readers,
            turns: Arc::new(Semaphore::new(1)),
        };
        if let Err(error) = migrate(&database, SQLITE).await {
            // Dropped, it would close later, and meanwhile hold the file and its space: the next
            // attempt to open the file could then fail as well.
            database.close().await;
            return Err(error);
        }
        Ok(database)
    }

    /// Closes all connections, of clones as well, once they are idle.
    ///
    /// A program that ends without it loses nothing; the next to open the file reads its log.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn try_begin(
        &self,
        durability: Durability,
    ) -> Result<PoolConnection<sqlx::Sqlite>, sqlx::Error> {
        let mut connection = self.writer.acquire().await?;
        if durability == Durability::Later {
            // Until the connection is released.
            sqlx::query("PRAGMA synchronous = NORMAL")
                .execute(&mut *connection)
                .await?;
        }
        // A plain BEGIN takes the lock at the first write, and fails at once if another process has
        // written since. This one waits for its turn here.
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut *connection)
            .await?;
        Ok(connection)
    }

    async fn begin_in_turn(
        &self,
        wait: Wait,
        durability: Durability,
    ) -> Result<SqliteWrite, StoreError> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(StoreError::database)?;
        let connection = loop {
            match self.try_begin(durability).await {
                Err(error) if wait == Wait::Unlimited && is_busy(&error) => {}
                begun => break begun.or_failure()?,
            }
        };
        Ok(SqliteWrite {
            connection,
            _turn: Some(turn),
        })
    }

    /// Writes the log into the file, and empties it: it contains what was deleted.
    pub(crate) async fn wipe(&self) {
        // A reader may need the log. It is emptied with the next deletion then, or when the file is
        // closed.
        let wiped = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .execute(&self.writer)
            .await;
        if let Err(error) = wiped {
            let error = error.to_string();
            tracing::debug!(error = %error.escape_debug(), "the log of the database is not emptied");
        }
    }

    /// Returns the connections that read.
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.readers
    }
}

/// The settings with which a file is opened. Created by [`Sqlite::options`].
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent_durable::Sqlite;
///
/// # async fn open() -> Result<(), tower_agent::BoxError> {
/// let wait = Duration::from_secs(30);
/// let database = Sqlite::options().readers(8).wait(wait).open("agent.db").await?;
/// # drop(database);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it opens nothing before `open`"]
pub struct SqliteOptions {
    readers: u32,
    wait: Duration,
}

impl SqliteOptions {
    /// Sets the number of connections that read at once. Defaults to 4. One more writes.
    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Sets how long a call waits for a connection, and for another process that writes, before it
    /// fails. Defaults to 10 seconds. A durable run that holds a result waits as long as it takes.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Opens a file as [`Sqlite::open`] does.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, or was written by a newer version of this crate.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Sqlite, StoreError> {
        let path = path.as_ref();
        create_private(path).map_err(StoreError::database)?;
        let options = options(self.wait)
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal);
        let writer = open_writer(
            &one_writer(self.wait),
            &options.clone().create_if_missing(true),
        )
        .await?;
        // Lazily, and after the writer: a reader cannot create the file or its tables.
        let readers = SqlitePoolOptions::new()
            .max_connections(self.readers)
            .acquire_timeout(self.wait);
        let readers = readers.connect_lazy_with(options.read_only(true));
        Sqlite::migrated(writer, readers).await
    }
}

/// Creates a file that is private to its owner, unless it exists. SQLite gives the files of its log
/// the same permissions.
fn create_private(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A transaction.
///
/// SQLite ends one by itself when the disk is full, after which a transaction of sqlx leaves a
/// connection that cannot begin another.
pub(crate) struct SqliteWrite {
    connection: PoolConnection<sqlx::Sqlite>,
    /// Dropped after the connection, which the next has to find free.
    _turn: Option<OwnedSemaphorePermit>,
}

impl SqliteWrite {
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        sqlx::query("COMMIT")
            .execute(&mut *self.connection)
            .await
            .or_failure()?;
        Ok(())
    }
}

impl Sql for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn begin(
        &self,
        wait: Wait,
        durability: Durability,
    ) -> BoxFuture<'_, Result<Box<dyn Transaction>, StoreError>> {
        Box::pin(async move {
            let write: Box<dyn Transaction> = Box::new(self.begin_in_turn(wait, durability).await?);
            Ok(write)
        })
    }

    fn wipe(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::wipe(self))
    }

    fn read_composed<'a>(
        &'a self,
        sql: String,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let rows = query(AssertSqlSafe(sql), values)?
                .fetch_all(self.readers())
                .await
                .or_failure()?;
            Ok(rows.into_iter().map(Row::new).collect())
        })
    }
}

impl Transaction for SqliteWrite {
    fn execute<'a>(
        &'a mut self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let done = query(sql, values)?
                .execute(self.connection())
                .await
                .or_failure()?;
            Ok(done.rows_affected())
        })
    }

    fn fetch_all<'a>(
        &'a mut self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let rows = query(sql, values)?
                .fetch_all(self.connection())
                .await
                .or_failure()?;
            Ok(rows.into_iter().map(Row::new).collect())
        })
    }

    fn run_script(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let run = self.connection().execute(sqlx::raw_sql(sql)).await;
            run.map(drop).or_failure()
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(Self::commit(*self))
    }
}

/// Returns a pool of one connection, which ends a transaction that was left behind, and syncs its
/// commits again.
fn one_writer(wait: Duration) -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(wait);
    pool.after_release(|connection, _| {
        Box::pin(async {
            // Fails if there is none.
            let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
            sqlx::query("PRAGMA synchronous = FULL")
                .execute(connection)
                .await?;
            Ok(true)
        })
    })
}

fn options(wait: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .busy_timeout(wait)
        .foreign_keys(true)
        // Without it, what was deleted stays in the file until its place is used again.
        .pragma("secure_delete", "ON")
        .synchronous(SqliteSynchronous::Full)
}

/// Opens the connection that writes.
///
/// Another process may create the file at the same moment, for which SQLite does not wait.
async fn open_writer(
    pool: &SqlitePoolOptions,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, StoreError> {
    let until = Instant::now() + WAIT;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_locked(&error) && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.or_failure(),
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}
