//! `Sqlite, Postgres: open, migrate; Sql: statements for both`
//!
//! The databases, which conversations and the journal share.

#[cfg(feature = "console")]
mod console;
mod conversations;
mod migrations;
mod or_failure;
#[cfg(feature = "postgres")]
mod pooled;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "rate-limit")]
mod rates;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod to_end;

pub(crate) use self::conversations::{ConversationVersion, EntryMessage};
#[cfg(feature = "postgres")]
pub use self::postgres::{Postgres, PostgresOptions};
pub(crate) use self::sql::{Dialect, Durability, Row, Sql, Transaction, Value, Wait};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{Sqlite, SqliteOptions};
pub(crate) use self::to_end::to_end;
