use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The wait after the second stream in a row that ended without a message.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait, before chance changes it.
const LONGEST: Duration = Duration::from_secs(60);

/// The waits before a stream is opened again that always ends without a message.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    opened: u32,
}

impl Backoff {
    /// Returns the wait before the stream is opened: none at first, then a longer one each time.
    pub(super) fn next(&mut self) -> Duration {
        let doublings = self.opened.checked_sub(2);
        self.opened = self.opened.saturating_add(1);
        let Some(doublings) = doublings else {
            return Duration::ZERO;
        };
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(doublings));
        // Up to a quarter less: the clients of a server that was started again come back apart.
        let chance = RandomState::new().hash_one(doublings) % 256;
        wait.min(LONGEST).mul_f64(1.0 - chance as f64 / 1024.0)
    }

    /// Begins anew, after a message.
    pub(super) fn reset(&mut self) {
        self.opened = 0;
    }
}
