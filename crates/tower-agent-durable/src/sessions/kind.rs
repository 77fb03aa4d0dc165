//! The kinds of what is stored in the tables of sessions.

/// A session, which [`SessionLayer`](crate::SessionLayer) writes.
pub(crate) const SESSION: &str = "session";

/// A thread, which [`SessionThreads`](crate::SessionThreads) writes.
#[cfg(feature = "threads")]
pub(crate) const THREAD: &str = "thread";
