use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds::LONGEST_WAIT;
use tower_agent::gauge::Amount;

/// The part of a unit that rounding may lose: a wait that has passed must be enough.
const ROUNDING: f64 = 1e-6;

/// A number of units in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quota {
    pub(super) limit: u64,
    pub(super) period: Duration,
}

impl Quota {
    pub(super) fn new(limit: u64, period: Duration) -> Self {
        // A limit of nothing would never let a call through, and a period of nothing all of them.
        Self {
            limit: limit.max(1),
            period: period.max(Duration::from_millis(1)),
        }
    }
}

/// Units that come back evenly, up to a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bucket {
    /// The units that are left. Negative after a call that used more than there was.
    level: f64,
    capacity: f64,
    /// The units that come back each second.
    rate: f64,
    /// The time of the level.
    at: Duration,
    /// The period of the limit; zero if it is not known.
    period: Duration,
    /// The time from which a report is too old to keep calls away. `None` for a limit of one's own.
    believed_until: Option<Duration>,
}

impl Bucket {
    /// Creates the full bucket of a quota, of which the share `burst` may be used at once.
    pub(super) fn full(quota: Quota, burst: f64, now: Duration) -> Self {
        let limit = quota.limit as f64;
        let capacity = (limit * burst).max(1.0);
        // A full bucket and what comes back in a period are the limit together, so that no period
        // has more: the bucket is empty at the start of the first unit that comes back.
        let rate = (limit - capacity + 1.0).max(0.0) / quota.period.as_secs_f64();
        Self {
            level: capacity.min(limit),
            capacity,
            rate,
            at: now,
            period: quota.period,
            believed_until: None,
        }
    }

    /// Creates a bucket as a provider reports it, who may be wrong: it is believed for a time only.
    pub(super) fn reported(level: f64, capacity: f64, rate: f64, now: Duration) -> Self {
        Self {
            level: level.min(capacity),
            capacity,
            rate,
            at: now,
            period: Duration::ZERO,
            believed_until: Some(now.saturating_add(LONGEST_WAIT)),
        }
    }

    /// Takes over the limit of another bucket, without giving units back at once.
    pub(super) fn resize(&mut self, other: Self) {
        *self = Self {
            level: self.level.min(other.capacity),
            at: self.at,
            ..other
        };
    }

    /// Returns whether the bucket still says something at this time.
    pub(super) fn is_believed(&self, now: Duration) -> bool {
        let is_believed = self.believed_until.is_none_or(|until| until > now);
        if !is_believed && self.missing(1.0) > self.rate * LONGEST_WAIT.as_secs_f64() {
            tracing::warn!(
                most = ?LONGEST_WAIT,
                "a provider reported a limit that is closed for very long; its report is forgotten"
            );
        }
        is_believed
    }

    pub(super) fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + self.rate * passed).min(self.capacity);
        // The clocks of two processes may differ by a little, and time never goes back here.
        self.at = self.at.max(now);
    }

    /// Returns the time until this many units can be taken.
    pub(super) fn wait(&self, units: f64) -> Duration {
        let missing = self.missing(units);
        if missing <= ROUNDING {
            return Duration::ZERO;
        }
        let wait = Duration::try_from_secs_f64(missing / self.rate).unwrap_or(Duration::MAX);
        match self.believed_until {
            Some(until) => wait.min(until.saturating_sub(self.at)),
            None => wait,
        }
    }

    fn missing(&self, units: f64) -> f64 {
        // A call that is larger than the bucket may go when it is full. Those after it wait longer.
        units.min(self.capacity) - self.level
    }

    pub(super) fn take(&mut self, units: f64) {
        self.level -= units;
    }

    /// Gives back what a call has not used of what it took; less than nothing if it used more.
    pub(super) fn give_back(&mut self, units: f64) {
        // What it used is the word of the provider: it empties the bucket for a period or the
        // longest wait, and no longer. What is less than that already stays.
        let longest = self.period.max(LONGEST_WAIT);
        let lowest = match self.believed_until {
            // A report is forgotten as a whole.
            Some(_) => f64::NEG_INFINITY,
            None => self.capacity - self.rate * longest.as_secs_f64(),
        };
        let stated = self.level + units;
        let level = stated.max(self.level.min(lowest));
        if level > stated {
            tracing::warn!(
                ?longest,
                "a call used more than comes back in this time; the limit forgets the rest"
            );
        }
        self.level = level.min(self.capacity);
    }

    /// Returns what is left, in whole units: less than nothing while a call is paid back.
    pub(super) fn left(&self, name: &'static str) -> Amount {
        Amount::new(name, self.level.floor()).limit(self.capacity.floor())
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Returns the time from which nothing is used.
    pub(super) fn full_at(&self) -> Duration {
        self.at.saturating_add(self.wait(self.capacity))
    }
}
