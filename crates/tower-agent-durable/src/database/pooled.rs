//! Statements that may go through a pooler: all of PostgreSQL's.

use sqlx::SqlSafeStr;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use tower_agent_conversations::StoreError;

use super::sql::{Value, query};

// Set in each transaction, whatever the server's defaults are: a statement that has waited for
// another process sees its writes, a commit is on the disk when it returns, and a process that is
// stalled, or cut off, does not keep others out for long. Not for the connection, which behind a
// pooler is that of other programs as well.
pub(super) const BEGIN: &str = "\
    BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; \
    SELECT set_config('synchronous_commit', 'on', true) \
    WHERE current_setting('synchronous_commit') = 'off'";

// The same for a write that a server which is killed may lose.
pub(super) const BEGIN_UNSYNCED: &str = "\
    BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; \
    SET LOCAL synchronous_commit = off";

// The same for a read.
pub(super) const BEGIN_READ: &str = "\
    BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// Returns a statement that has no name at the server, and so is good until its transaction ends.
///
/// A pooler in transaction mode has each transaction in any connection of the server: there a name
/// means what another program has prepared under it, or nothing.
pub(super) fn unnamed(
    sql: impl SqlSafeStr,
    values: &[Value<'_>],
) -> Result<Query<'static, sqlx::Postgres, PgArguments>, StoreError> {
    Ok(query(sql, values)?.persistent(false))
}
