use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::migrations::{self, POSTGRES, migrator};
use super::or_failure::OrFailure;
use super::sql::{Row, Sql, Transaction, Value, query};
use crate::error::StoreError;

const WAIT: Duration = Duration::from_secs(10);

// Whatever the server's defaults are: a process that is stalled in the middle of a write does not keep
// others out for hours, and a commit is on the disk when it returns.
const CONNECTED: &str = "\
    SET idle_in_transaction_session_timeout = '10s'; \
    SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

// Set here too, whatever the server's defaults are: a statement that has waited for another process sees its
// writes, and a process that is stalled, or cut off, does not keep others out for long.
const BEGIN: &str = "\
    BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// A PostgreSQL database, which several processes and machines may share.
///
/// A finished write is on disk, also if the server's `synchronous_commit` is off.
///
/// Connections that were lost are replaced. Clones share the connections. A process that is stalled, or
/// cut off, while it writes keeps the others out for 5 seconds at most, and its write fails.
///
/// ```no_run
/// use tower_agent_durable::Postgres;
///
/// # async fn connect() -> Result<(), tower_agent::BoxError> {
/// let database = Postgres::connect(&std::env::var("DATABASE_URL")?).await?;
/// # drop(database);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Postgres(PgPool);

impl Postgres {
    /// Connects to a database, such as `postgres://user:password@host/name`, and creates the tables
    /// if they do not exist.
    ///
    /// Connections are encrypted if the server can; `?sslmode=verify-full` insists on it.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be reached, or was written by a newer version of this crate.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url).or_failure()?;
        let pool = PgPoolOptions::new()
            .acquire_timeout(WAIT)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(CONNECTED).await.map(drop) })
            });
        let pool = pool.connect_with(options).await.or_failure()?;
        let migrated = migrator(POSTGRES).run(&pool).await;
        migrated.map_err(|error| migrations::failed(error, POSTGRES))?;
        Ok(Self(pool))
    }

    /// Closes all connections, of clones as well, once they are idle.
    pub async fn close(&self) {
        self.0.close().await;
    }

    /// Begins a transaction. Without a commit it has no effect.
    pub(crate) async fn begin(
        &self,
    ) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, StoreError> {
        self.0.begin_with(BEGIN).await.or_failure()
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.0
    }
}

impl Sql for Postgres {
    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, StoreError>> {
        Box::pin(async {
            let begun: Box<dyn Transaction> = Box::new(Self::begin(self).await?);
            Ok(begun)
        })
    }

    fn read<'a>(
        &'a self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let rows = query(sql, values)?.fetch_all(&self.0).await.or_failure()?;
            Ok(rows.into_iter().map(Row::new).collect())
        })
    }
}

impl Transaction for sqlx::Transaction<'static, sqlx::Postgres> {
    fn execute<'a>(
        &'a mut self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let done = query(sql, values)?
                .execute(&mut **self)
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
                .fetch_all(&mut **self)
                .await
                .or_failure()?;
            Ok(rows.into_iter().map(Row::new).collect())
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async { Self::commit(*self).await.or_failure() })
    }
}

impl fmt::Debug for Postgres {
    /// Omits the URL, which has the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
