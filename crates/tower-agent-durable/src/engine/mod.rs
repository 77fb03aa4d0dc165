//! Durable runs on several machines: an engine says which of them makes a run, and the
//! [journal](crate::journal) keeps its steps.
//!
//! | | `dbos` | `restate` |
//! |---|---|---|
//! | needs | PostgreSQL | a Restate server, or a cluster of them |
//! | the journal is | `Postgres` | the engine itself |
//! | that a machine is lost is noticed by | something that you have, which says so | the server |

#[cfg(feature = "dbos")]
#[cfg_attr(docsrs, doc(cfg(feature = "dbos")))]
pub mod dbos;
#[cfg(feature = "restate")]
#[cfg_attr(docsrs, doc(cfg(feature = "restate")))]
pub mod restate;
