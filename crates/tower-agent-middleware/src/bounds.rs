//! The most that a number may do which somebody else has sent: a provider, a client, a user.
//!
//! Such a number is a claim. It is believed while it can be true, and no further: a mistake in one
//! answer, or a lie, must not stop the calls of everybody until the next restart.

use std::time::Duration;

use tower_agent::error::{Error, ErrorKind, Result};

/// The longest time for which the word of a provider keeps calls away.
///
/// An hour is longer than the limits by the minute that ask for most waits. Where a limit by the
/// day is used up, one call an hour asks in vain, which costs nothing; where a provider was wrong,
/// nobody has to restart anything.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The longest wait for which a call that has failed stays open, unless the program says more.
pub(crate) const LONGEST_RETRY_WAIT: Duration = Duration::from_secs(60);

/// The longest key of a limit, a circuit or a tenant, in bytes. It names somebody, and is kept.
pub(crate) const LONGEST_KEY: usize = 512;

/// The most keys of which a limit or a circuit remembers something: a few tens of megabytes.
pub(crate) const MOST_KEYS: usize = 100_000;

/// Returns the wait that a provider has asked for, at most [`LONGEST_WAIT`].
pub(crate) fn wait(asked: Duration) -> Duration {
    if asked > LONGEST_WAIT {
        tracing::warn!(
            ?asked,
            most = ?LONGEST_WAIT,
            "a provider asked for a very long wait; calls are made again sooner"
        );
    }
    asked.min(LONGEST_WAIT)
}

/// Returns a key that is not too long to be kept.
pub(crate) fn key(key: String) -> Result<String> {
    if key.len() <= LONGEST_KEY {
        return Ok(key);
    }
    let message = format!(
        "not called: its key has {} bytes, more than {LONGEST_KEY}; return a shorter one, such as a \
         digest",
        key.len()
    );
    Err(Error::new(ErrorKind::InvalidRequest, message))
}
