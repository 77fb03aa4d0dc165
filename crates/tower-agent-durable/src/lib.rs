//! Sessions and durable runs of agents, in SQLite or PostgreSQL.
//!
//! ```text
//! Sqlite, Postgres  ->  one database for both
//! ```
//!
//! [`Sqlite`] is for one process and needs no server; [`Postgres`] is for several. Both create
//! their tables when they are opened, and hold the data of this crate under names that start with
//! `tower_agent_`, so that a database can be shared with other data.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod database;
mod error;
pub mod journal;
mod sessions;
mod time;

#[cfg(feature = "postgres")]
pub use self::database::Postgres;
#[cfg(feature = "sqlite")]
pub use self::database::Sqlite;
pub use self::error::StoreError;
pub use self::sessions::{
    Append, NotStored, ResponseFuture, Session, SessionInfo, SessionKey, SessionLayer,
    SessionQuery, SessionService, SessionStore, StoredSession,
};

/// The README's example, so that it compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
