use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use futures_util::future::BoxFuture;
use sqlx::migrate::MigrateError;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};

use super::migrations::{self, SQLITE, migrator};
use super::or_failure::OrFailure;
use super::sql::{Row, Sql, Transaction, Value, query};
use crate::error::StoreError;

const WAIT: Duration = Duration::from_secs(10);
const READERS: u32 = 4;

/// An SQLite database: a file, or memory.
///
/// A finished write is on disk: neither a killed process nor a power cut loses it. Writers take
/// turns, and readers do not wait for them. Clones share the connections.
///
/// Several processes of one machine may open the same file. For several machines use
/// [`Postgres`](crate::Postgres): a file on a network drive is not safe. A process that is stalled while
/// it writes keeps the others out, whose writes fail after 10 seconds, until it continues or ends.
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
}

impl Sqlite {
    /// Opens a file, and creates it and its tables if they do not exist.
    ///
    /// On Unix, a file that is created can be read and written by its owner alone, with its log: it
    /// contains conversations and private state as they are. The permissions of a file that exists stay
    /// as they are.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, or was written by a newer version of this crate.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        create_private(path).map_err(StoreError::database)?;
        let options = options()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal);
        let writer = open_writer(&one_writer(), &options.clone().create_if_missing(true)).await?;
        // Lazily, and after the writer: a reader cannot create the file or its tables.
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(WAIT);
        let readers = readers.connect_lazy_with(options.read_only(true));
        Ok(Self { writer, readers })
    }

    /// Creates a database in memory, which is gone with its last clone.
    ///
    /// # Errors
    ///
    /// Fails if the tables cannot be created.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // A database in memory belongs to one connection and ends with it: there must be exactly one, which
        // is never replaced.
        let one = one_writer()
            .min_connections(1)
            .max_lifetime(None)
            .idle_timeout(None);
        // sqlx closes a connection whose test is dropped halfway, and the data would go with it.
        let one = one.test_before_acquire(false);
        let writer = open_writer(&one, &options().in_memory(true)).await?;
        Ok(Self {
            readers: writer.clone(),
            writer,
        })
    }

    /// Closes all connections, of clones as well, once they are idle.
    ///
    /// A program that ends without it loses nothing; the next to open the file reads its log.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Returns the one connection that writes.
    pub(crate) fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    /// Begins a transaction that writes, when it is its turn. Without a commit it has no effect.
    pub(crate) async fn begin(&self) -> Result<SqliteWrite, StoreError> {
        let mut connection = self.writer.acquire().await.or_failure()?;
        // A plain BEGIN takes the lock at the first write, and fails at once if another process has written
        // since. This one waits for its turn here.
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut *connection)
            .await
            .or_failure()?;
        Ok(SqliteWrite(connection))
    }

    /// Returns the connections that read.
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.readers
    }
}

/// Creates a file that is private to its owner, unless it exists. SQLite gives the files of its log the
/// same permissions.
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
pub(crate) struct SqliteWrite(PoolConnection<sqlx::Sqlite>);

impl SqliteWrite {
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.0
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        sqlx::query("COMMIT")
            .execute(&mut *self.0)
            .await
            .or_failure()?;
        Ok(())
    }
}

impl Sql for Sqlite {
    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, StoreError>> {
        Box::pin(async {
            let write: Box<dyn Transaction> = Box::new(Self::begin(self).await?);
            Ok(write)
        })
    }

    fn read<'a>(
        &'a self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let rows = query(sql, values)?
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

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(Self::commit(*self))
    }
}

/// Returns a pool of one connection, which ends a transaction that was left behind.
fn one_writer() -> SqlitePoolOptions {
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(WAIT);
    pool.after_release(|connection, _| {
        Box::pin(async {
            // Fails if there is none.
            let _ = sqlx::query("ROLLBACK").execute(connection).await;
            Ok(true)
        })
    })
}

fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .busy_timeout(WAIT)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
}

/// Opens the connection that writes, and creates the tables.
///
/// Another process may do so at the same moment, for which SQLite does not wait.
async fn open_writer(
    pool: &SqlitePoolOptions,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, StoreError> {
    let until = Instant::now() + WAIT;
    loop {
        match try_open_writer(pool.clone(), options.clone()).await {
            Err(error) if has_met_another(&error) && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.map_err(|error| migrations::failed(error, SQLITE)),
        }
    }
}

async fn try_open_writer(
    pool: SqlitePoolOptions,
    options: SqliteConnectOptions,
) -> Result<SqlitePool, MigrateError> {
    let writer = pool.connect_with(options).await?;
    match migrator(SQLITE).run(&writer).await {
        Ok(()) => Ok(writer),
        Err(error) => {
            // Dropped, it would close later, and meanwhile hold the file and its space: the next
            // attempt to open the file could then fail as well.
            writer.close().await;
            Err(error)
        }
    }
}

/// Returns whether the database was locked, or a table was created in between.
fn has_met_another(error: &MigrateError) -> bool {
    let (MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) = error else {
        return false;
    };
    let code = error.as_database_error().and_then(|error| error.code());
    // SQLITE_BUSY and SQLITE_ERROR.
    code.is_some_and(|code| matches!(&*code, "5" | "1"))
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}
