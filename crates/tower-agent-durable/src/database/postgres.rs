use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
#[cfg(feature = "rate-limit")]
use tower_agent::error::{Error, ErrorKind};
#[cfg(feature = "rate-limit")]
use tower_agent_middleware::rate_limit::{Exhausted, RateChange, RateState, RateStore};

use super::migrations::{POSTGRES, migrate};
use super::or_failure::{OrFailure, is_busy};
use super::pooled::{BEGIN, BEGIN_READ, BEGIN_UNSYNCED, unnamed};
#[cfg(feature = "rate-limit")]
use super::rates::{RateQueue, short};
use super::sql::{Dialect, Durability, Row, Sql, Transaction, Value, Wait};
use super::to_end::to_end;
use tower_agent_conversations::StoreError;

/// The default time for which a call waits for a connection.
const WAIT: Duration = Duration::from_secs(10);

/// The default number of connections.
const CONNECTIONS: u32 = 10;

/// A PostgreSQL database, which several processes and machines may share. What it stores is not
/// encrypted: see [how to encrypt the disk](crate::guide::deployment#encryption).
///
/// A finished write is on disk, also if the server's `synchronous_commit` is off.
///
/// Deleted rows stay in the server's files until it vacuums their table, which it does by itself,
/// and in its log and backups for as long as it keeps those.
///
/// Connections may go through a pooler, also one that shares those of the server between
/// transactions: see [how](crate::guide::deployment#poolers).
///
/// Connections that were lost are replaced. Clones share the connections. A process that is
/// stalled, or cut off, while it writes keeps the others out for 5 seconds at most, and its write
/// fails.
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
pub struct Postgres {
    pool: PgPool,
    /// The turns of journals, which do not time out: as many as there are connections.
    turns: Arc<Semaphore>,
    #[cfg(feature = "rate-limit")]
    rates: RateQueue,
}

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
        Self::options().connect(url).await
    }

    /// Returns the settings with which a database is connected.
    pub fn options() -> PostgresOptions {
        PostgresOptions {
            max_connections: CONNECTIONS,
            wait: WAIT,
        }
    }

    /// Uses the connections of the application, and creates the tables if they do not exist.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be reached, or was written by a newer version of this crate.
    pub async fn from_pool(pool: PgPool) -> Result<Self, StoreError> {
        let connections = usize::try_from(most(&pool)).unwrap_or(usize::MAX);
        let turns = connections.clamp(1, Semaphore::MAX_PERMITS);
        let database = Self {
            #[cfg(feature = "rate-limit")]
            rates: RateQueue::new(pool.clone()),
            pool,
            turns: Arc::new(Semaphore::new(turns)),
        };
        migrate(&database, POSTGRES).await?;
        Ok(database)
    }

    /// Closes all connections, of clones as well, once they are idle.
    ///
    /// The ends of calls that are on their way to their rate limit are written before, if the
    /// database answers.
    pub async fn close(&self) {
        #[cfg(feature = "rate-limit")]
        self.rates.close().await;
        self.pool.close().await;
    }

    /// Begins a transaction, also if nobody waits for it any more: sqlx would give the connection
    /// back without knowing that the server has begun one, and what came next would be in it.
    async fn begin_whole(
        &self,
        statement: &'static str,
    ) -> Result<sqlx::Result<sqlx::Transaction<'static, sqlx::Postgres>>, StoreError> {
        let pool = self.pool.clone();
        to_end(async move { Ok(pool.begin_with(statement).await) }).await
    }

    async fn begin_in_turn(
        &self,
        wait: Wait,
        durability: Durability,
    ) -> Result<PostgresWrite, StoreError> {
        let begin = match durability {
            Durability::AtCommit => BEGIN,
            Durability::Later => BEGIN_UNSYNCED,
        };
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(StoreError::database)?;
        let transaction = loop {
            match self.begin_whole(begin).await? {
                // Fewer connections than there may be: the server cannot be reached.
                Err(error)
                    if wait == Wait::Unlimited
                        && is_busy(&error)
                        && self.pool.size() >= most(&self.pool) => {}
                begun => break begun.or_failure()?,
            }
        };
        Ok(PostgresWrite {
            transaction,
            _turn: turn,
        })
    }
}

/// Returns the maximum number of connections.
fn most(pool: &PgPool) -> u32 {
    pool.options().get_max_connections()
}

/// The settings with which a database is connected. Created by [`Postgres::options`].
///
/// ```no_run
/// use tower_agent_durable::Postgres;
///
/// # async fn connect() -> Result<(), tower_agent::BoxError> {
/// let url = std::env::var("DATABASE_URL")?;
/// let database = Postgres::options().max_connections(30).connect(&url).await?;
/// # drop(database);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it connects to nothing before `connect`"]
pub struct PostgresOptions {
    max_connections: u32,
    wait: Duration,
}

impl PostgresOptions {
    /// Sets the maximum number of connections. Defaults to 10.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections.max(1);
        self
    }

    /// Sets how long a call waits for a connection before it fails. Defaults to 10 seconds. A
    /// durable run that holds a result waits as long as others use all of them.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Connects to a database as [`Postgres::connect`] does.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be reached, or was written by a newer version of this crate.
    pub async fn connect(self, url: &str) -> Result<Postgres, StoreError> {
        let options = PgConnectOptions::from_str(url).or_failure()?;
        // No column is a float, and poolers refuse a connection that asks for their digits.
        let options = options.extra_float_digits(None);
        let pool = PgPoolOptions::new()
            .max_connections(self.max_connections)
            .acquire_timeout(self.wait);
        Postgres::from_pool(pool.connect_with(options).await.or_failure()?).await
    }
}

/// A transaction in its turn.
struct PostgresWrite {
    transaction: sqlx::Transaction<'static, sqlx::Postgres>,
    /// Dropped after the connection, which the next has to find free.
    _turn: OwnedSemaphorePermit,
}

impl Sql for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn begin(
        &self,
        wait: Wait,
        durability: Durability,
    ) -> BoxFuture<'_, Result<Box<dyn Transaction>, StoreError>> {
        Box::pin(async move {
            let begun: Box<dyn Transaction> = Box::new(self.begin_in_turn(wait, durability).await?);
            Ok(begun)
        })
    }

    /// Deleted rows are the server's to remove, which does so by itself.
    fn wipe(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn read_composed<'a>(
        &'a self,
        sql: String,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            // Nothing is to be committed: the transaction ends behind the caller's back.
            let mut transaction = self.begin_whole(BEGIN_READ).await?.or_failure()?;
            let rows = unnamed(AssertSqlSafe(sql), values)?
                .fetch_all(&mut *transaction)
                .await
                .or_failure()?;
            Ok(rows.into_iter().map(Row::new).collect())
        })
    }
}

impl Transaction for PostgresWrite {
    fn execute<'a>(
        &'a mut self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let done = unnamed(sql, values)?
                .execute(&mut *self.transaction)
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
            let rows = unnamed(sql, values)?
                .fetch_all(&mut *self.transaction)
                .await
                .or_failure()?;
            Ok(rows.into_iter().map(Row::new).collect())
        })
    }

    fn run_script(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let run = self.transaction.execute(sqlx::raw_sql(sql)).await;
            run.map(drop).or_failure()
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async {
            let Self { transaction, _turn } = *self;
            transaction.commit().await.or_failure()
        })
    }
}

/// Rate limits that processes share, with the feature `rate-limit`.
///
/// ```no_run
/// use std::time::Duration;
///
/// use tower_agent::Agent;
/// use tower_agent_durable::Postgres;
/// use tower_agent_middleware::rate_limit::RateLimitLayer;
///
/// # async fn limited(model: impl tower_agent::model::ModelService) -> Result<(), tower_agent::BoxError> {
/// let database = Postgres::connect(&std::env::var("DATABASE_URL")?).await?;
/// let minute = Duration::from_secs(60);
/// let limit = RateLimitLayer::new()
///     .requests(500, minute)
///     .tokens(200_000, minute)
///     .shared_in(database.clone(), "openai");
/// let agent = Agent::builder(model).model_layer(limit).build()?;
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
///
/// The time is that of the database's clock. A limit is a row, with a hash of the name and the key
/// as its id; rows that say nothing any more are deleted, up to a hundred whenever a row is added.
/// A call that may be made costs a read and a write, together with the calls of the same limit that
/// end or begin meanwhile in this process, and a call that has to wait a read. No lock is held
/// between them.
///
/// A call whose limit cannot be asked for fails with [`Store`](ErrorKind::Store) and is not made:
/// the [wait](PostgresOptions::wait) for a connection and 10 seconds for each statement are the
/// limits. Its error names the limit, and has the [`StoreError`] as its source. The end of a call
/// is tried again for a minute, and is lost with the process, or if there is no Tokio runtime: the
/// call then counts as it was reserved, which a warning says.
#[cfg(feature = "rate-limit")]
impl RateStore for Postgres {
    fn update<'a>(
        &'a self,
        key: &'a str,
        change: RateChange,
    ) -> BoxFuture<'a, Result<Option<Exhausted>, Error>> {
        Box::pin(async move {
            let updated = self.rates.update(key, change).await;
            updated.map_err(|error| unknown(key, "not called", error))
        })
    }

    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(RateState, Duration), Error>> {
        Box::pin(async move {
            let read = self.rates.read(key).await;
            read.map_err(|error| unknown(key, "not read", error))
        })
    }

    fn update_later(&self, key: &str, change: RateChange) {
        self.rates.update_later(key, change);
    }
}

/// Returns the error of a limit that is not known, and what was not done for it. The database's own
/// words are for the operator, and stay in the source.
#[cfg(feature = "rate-limit")]
fn unknown(key: &str, what: &str, error: StoreError) -> Error {
    let cure = match error {
        StoreError::Data(_) => {
            "its state in the database cannot be read; this error's source says how to delete it"
        }
        _ => "the database does not answer; try again when it does",
    };
    let limit = short(key);
    Error::new(
        ErrorKind::Store,
        format!("{what}: the limit {limit} is not known, since {cure}"),
    )
    .with_source(error)
}

impl fmt::Debug for Postgres {
    /// Omits the URL, which has the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
