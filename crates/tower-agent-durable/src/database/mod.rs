//! `Sqlite, Postgres: open, migrate`
//!
//! The databases, which sessions and the journal share.

mod migrations;
mod or_failure;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

pub(crate) use self::or_failure::OrFailure;
#[cfg(feature = "postgres")]
pub use self::postgres::Postgres;
#[cfg(feature = "sqlite")]
pub use self::sqlite::Sqlite;
#[cfg(feature = "sqlite")]
pub(crate) use self::sqlite::SqliteWrite;
