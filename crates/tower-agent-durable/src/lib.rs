//! Durable runs of agents, and their conversations, in SQLite or PostgreSQL. What is stored is not
//! encrypted: see [how to encrypt the disk](guide::deployment#encryption).
//!
//! ```text
//! Sqlite, Postgres  ->  ConversationStore, Journal
//! journal::Durable  ->  model and tool calls that are not repeated after a crash
//! ```
//!
//! A database is a [store](tower_agent_conversations::ConversationStore) for the sessions and
//! threads of [`tower_agent_conversations`]. A [journal] keeps the results of the calls of a run.
//! With an engine, which is a crate of its own, another machine continues a run whose machine is
//! lost. The guide on [keeping](guide::keeping) says which of these you need; the one on
//! [deployment](guide::deployment) how to stop, upgrade and back up a server.
//!
//! | engine | [`tower-agent-dbos`](https://docs.rs/tower-agent-dbos) | [`tower-agent-restate`](https://docs.rs/tower-agent-restate) |
//! |---|---|---|
//! | needs | PostgreSQL | a Restate server, or a cluster of them |
//! | the journal is | `Postgres` | the engine itself |
//! | lost machines are detected by | your own health checks | the server |
//!
//! `Sqlite` is for one machine and needs no server; `Postgres` (feature `postgres`) is for several.
//! Both create their tables when they are opened, under names that start with `tower_agent_`, so
//! that a database can be shared with other data. A clone shares the connections, and one database
//! serves everything in this crate.
//!
//! With the feature `console`, a database keeps the runs that a page of
//! [`tower-agent-console`](https://docs.rs/tower-agent-console) shows, and its durable
//! [runs](journal::Runs) are listed there.
//!
//! With the feature `rate-limit`, processes share the [rate
//! limits](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/rate_limit) of
//! their calls in a `Postgres`.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod database;
pub mod guide;
mod inbox;
pub mod journal;
mod lock;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod time;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod user_data;

pub use tower_agent_conversations::StoreError;

#[cfg(feature = "postgres")]
pub use self::database::{Postgres, PostgresOptions};
#[cfg(feature = "sqlite")]
pub use self::database::{Sqlite, SqliteOptions};
pub use self::inbox::AgentInbox;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::user_data::{UserData, UserRun, UserSession, UserWatchedRun};

/// The README's example, so that it compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
