//! The most that a client may say, and the longest that it may keep what a server has.
//!
//! Whoever reaches the server can send anything, and may never read what it answers. What the
//! [builder](super::McpServerBuilder) can change is here as its default; the docs of the
//! [module](super#limits) have the list.

use std::time::Duration;

/// The size of a request, in bytes.
pub(super) const REQUEST: usize = 4 << 20;

/// The size of a request that begins a session, in bytes: what the client says of itself stays in
/// memory for as long as the session does.
pub(super) const FIRST_REQUEST: usize = 64 << 10;

/// The time in which a request has to arrive.
pub(super) const BODY_TIME: Duration = Duration::from_secs(30);

/// The requests that are answered at once, over HTTP.
pub(super) const RUNS: usize = 1000;

/// The requests that are answered at once, of one principal.
pub(super) const RUNS_PER_PRINCIPAL: usize = 100;

/// The time of a call. An answer that somebody waits for takes minutes.
pub(super) const RUN_TIME: Duration = Duration::from_secs(3_600);

/// The time for which a client may take nothing of what there is.
pub(super) const READ_TIME: Duration = Duration::from_secs(60);

/// The sessions at once.
pub(super) const SESSIONS: usize = 10_000;

/// The time without a message after which a session ends.
pub(super) const SESSION_TIME: Duration = Duration::from_secs(5 * 60);

/// The length of a token of progress, in bytes: every notification has it.
pub(super) const PROGRESS_TOKEN: usize = 1024;

/// The time in which an interrupted call can be continued.
pub(super) const CONTINUED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The continued calls that are remembered.
pub(super) const CONTINUED: usize = 100_000;
