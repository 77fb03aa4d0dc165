//! Statements that mean the same to both databases. Their arguments are `$1`, `$2` and so on.

use std::fmt;

use futures_util::future::BoxFuture;
use sqlx::query::Query;
use sqlx::{Arguments, ColumnIndex, Database, Decode, Encode, IntoArguments, SqlSafeStr, Type};

use super::or_failure::OrFailure;
use tower_agent_conversations::StoreError;

/// A database with statements.
pub(crate) trait Sql: fmt::Debug + Send + Sync {
    /// Begins a transaction, in its turn. Without a commit it has no effect.
    fn begin(
        &self,
        wait: Wait,
        durability: Durability,
    ) -> BoxFuture<'_, Result<Box<dyn Transaction>, StoreError>>;

    /// Returns which database it is, for the few statements that differ.
    fn dialect(&self) -> Dialect;

    /// Removes what was deleted from the files of the database, as far as nobody reads it.
    fn wipe(&self) -> BoxFuture<'_, ()>;

    /// Returns the rows of a statement that only reads.
    fn read<'a>(
        &'a self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        self.read_composed(sql.into(), values)
    }

    /// Returns the rows of a statement that only reads, and is composed of ours. What others say is
    /// in its values.
    fn read_composed<'a>(
        &'a self,
        sql: String,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>>;
}

/// A database, by what it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// The time that a transaction waits for a connection when it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as the database's settings say.
    Limited,
    /// As long as others use all of them, since what it writes was paid for.
    Unlimited,
}

/// The time from which a power cut cannot lose a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It is durable when its commit has returned.
    AtCommit,
    /// It is durable when the commit of a later one that is durable then has returned. Its own does
    /// not wait for the disk.
    Later,
}

/// A transaction.
pub(crate) trait Transaction: Send {
    /// Executes a statement, and returns the number of rows that it has written.
    fn execute<'a>(
        &'a mut self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Executes a statement, and returns its rows.
    fn fetch_all<'a>(
        &'a mut self,
        sql: &'static str,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>>;

    /// Runs statements without arguments, such as those that create tables.
    fn run_script(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Commits the transaction.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// An argument of a statement.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(i64),
    Text(&'a str),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        // Epochs, which count up from 1, never get there.
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

/// A row, from either database.
pub(crate) struct Row(Box<dyn Columns>);

impl Row {
    pub(super) fn new(row: impl sqlx::Row + Columns + 'static) -> Self {
        Self(Box::new(row))
    }

    /// Returns a number.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: &str) -> Result<T, StoreError> {
        self.optional_number(column)?.ok_or_else(|| missing(column))
    }

    /// Returns a number, or `None` for `NULL`.
    pub(crate) fn optional_number<T: TryFrom<i64>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, StoreError> {
        let Some(number) = self.0.number(column)? else {
            return Ok(None);
        };
        let number = T::try_from(number).map(Some);
        number.map_err(|_| StoreError::data(format!("`{column}` is out of range")))
    }

    /// Returns a text.
    pub(crate) fn text(&self, column: &str) -> Result<&str, StoreError> {
        self.optional_text(column)?.ok_or_else(|| missing(column))
    }

    /// Returns a text, or `None` for `NULL`.
    pub(crate) fn optional_text(&self, column: &str) -> Result<Option<&str>, StoreError> {
        self.0.text(column)
    }
}

fn missing(column: &str) -> StoreError {
    StoreError::data(format!("`{column}` is missing"))
}

/// Returns a statement with its arguments.
pub(super) fn query<D>(
    sql: impl SqlSafeStr,
    values: &[Value<'_>],
) -> Result<Query<'static, D, D::Arguments>, StoreError>
where
    D: Database<Arguments: IntoArguments<D>>,
    for<'v> i64: Encode<'v, D> + Type<D>,
    for<'v> &'v str: Encode<'v, D> + Type<D>,
{
    let mut arguments = D::Arguments::default();
    for value in values {
        let added = match *value {
            Value::Number(number) => arguments.add(number),
            Value::Text(text) => arguments.add(text),
        };
        added.map_err(StoreError::data)?;
    }
    Ok(sqlx::query_with(sql, arguments))
}

pub(super) trait Columns: Send + Sync {
    fn number(&self, column: &str) -> Result<Option<i64>, StoreError>;
    fn text(&self, column: &str) -> Result<Option<&str>, StoreError>;
}

impl<R> Columns for R
where
    R: sqlx::Row,
    for<'c> &'c str: ColumnIndex<R>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> &'r str: Decode<'r, R::Database> + Type<R::Database>,
{
    fn number(&self, column: &str) -> Result<Option<i64>, StoreError> {
        self.try_get(column).or_failure()
    }

    fn text(&self, column: &str) -> Result<Option<&str>, StoreError> {
        self.try_get(column).or_failure()
    }
}
