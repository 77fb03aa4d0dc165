//! The kinds of stored conversations: which policy wrote one, and reads it.

/// A session, which [`SessionLayer`](crate::SessionLayer) writes.
pub(crate) const SESSION: &str = "session";

/// A thread, which [`Threads`](crate::Threads) writes.
pub(crate) const THREAD: &str = "thread";
