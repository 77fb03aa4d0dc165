use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, Quota};
use super::exhausted::{Exhausted, LimitedResource};
use super::headers::{Report, Reported};
use tower_agent::gauge::{Amount, Reading};

/// The period of a provider's limit that does not say when it resets.
const PERIOD: Duration = Duration::from_secs(60);

/// The state of a limit: what is left of it, and what its provider has reported.
///
/// It serialises, for a [store](super::RateStore) that processes share. A text that another version
/// has written is an error where this one would read less in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateState {
    requests: Levels,
    tokens: Levels,
    /// The time until which the provider accepts no calls.
    closed_until: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Levels {
    configured: Option<Bucket>,
    reported: Option<Bucket>,
}

/// A change of a [`RateState`], to be applied by a [store](super::RateStore).
#[derive(Clone, Debug)]
pub struct RateChange(pub(super) Change);

#[derive(Clone, Debug)]
pub(super) enum Change {
    Take {
        quotas: Quotas,
        tokens: u64,
    },
    Settle {
        /// The call was not made.
        gives_request_back: bool,
        reserved: u64,
        used: u64,
        report: Report,
        /// The wait that the provider asked for.
        closed_for: Option<Duration>,
    },
}

/// The configured limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quotas {
    pub(super) requests: Option<Quota>,
    pub(super) tokens: Option<Quota>,
    pub(super) burst: f64,
}

impl RateChange {
    /// Applies the change to a state, and returns the reason if a call has to wait. `now` is the
    /// time since any moment that stays the same for this state.
    ///
    /// It may be applied again to another state, if a store finds that the first one has changed
    /// meanwhile.
    pub fn apply(&self, state: &mut RateState, now: Duration) -> Option<Exhausted> {
        state.refill(now);
        match &self.0 {
            Change::Take { quotas, tokens } => state.take(quotas, *tokens, now),
            Change::Settle {
                gives_request_back,
                reserved,
                used,
                report,
                closed_for,
            } => {
                if *gives_request_back {
                    state.requests.give_back(1.0);
                }
                state.tokens.give_back(*reserved as f64 - *used as f64);
                state.requests.learn(report.requests, now);
                state.tokens.learn(report.tokens, now);
                if let Some(wait) = closed_for {
                    let until = now.saturating_add(*wait);
                    state.closed_until = state.closed_until.max(Some(until));
                }
                None
            }
        }
    }

    /// Returns the change that takes this one back, for a store whose caller was dropped before it
    /// knew that its call may be made. `None` for the end of a call.
    #[must_use]
    pub fn inverse(&self) -> Option<Self> {
        let Change::Take { tokens, .. } = self.0 else {
            return None;
        };
        Some(Self(Change::Settle {
            gives_request_back: true,
            reserved: tokens,
            used: 0,
            report: Report::default(),
            closed_for: None,
        }))
    }
}

impl RateState {
    /// Returns the time from which nothing is used, so that a store may forget the state.
    #[must_use]
    pub fn unused_at(&self) -> Duration {
        let buckets = self.requests.buckets().chain(self.tokens.buckets());
        let full = buckets.map(Bucket::full_at).max();
        full.max(self.closed_until).unwrap_or_default()
    }

    /// Returns the state at this time as it is shown. With these limits, of which an unused one
    /// knows nothing.
    pub(super) fn reading(&self, quotas: &Quotas, now: Duration) -> Reading {
        let mut state = self.clone();
        state.refill(now);
        state.requests.configure(quotas.requests, quotas.burst, now);
        state.tokens.configure(quotas.tokens, quotas.burst, now);
        let closed = state.closed_until.map(|until| until - now);
        let wait = state.requests.wait(1.0).max(state.tokens.wait(1.0));
        let word = match closed {
            Some(_) => "closed by the provider",
            None if wait.is_zero() => "free",
            None => "used up",
        };
        let wait = wait.max(closed.unwrap_or_default());
        let mut reading = Reading::new("rate limit", word, wait.is_zero());
        reading.amounts.extend(state.requests.amounts(
            quotas.requests,
            [
                "requests left at once",
                "requests left, as the provider says",
            ],
            "requests",
        ));
        reading.amounts.extend(state.tokens.amounts(
            quotas.tokens,
            ["tokens left at once", "tokens left, as the provider says"],
            "tokens",
        ));
        if wait.is_zero() {
            return reading;
        }
        reading.with(Amount::new("next call in", wait.as_secs_f64()).unit("s"))
    }

    fn refill(&mut self, now: Duration) {
        self.requests.refill(now);
        self.tokens.refill(now);
        self.closed_until = self.closed_until.filter(|until| *until > now);
    }

    fn take(&mut self, quotas: &Quotas, tokens: u64, now: Duration) -> Option<Exhausted> {
        self.requests.configure(quotas.requests, quotas.burst, now);
        self.tokens.configure(quotas.tokens, quotas.burst, now);
        let tokens = tokens as f64;
        let closed = self.closed_until.map(|until| until - now);
        let waits = [
            (LimitedResource::Provider, closed.unwrap_or_default()),
            (LimitedResource::Requests, self.requests.wait(1.0)),
            (LimitedResource::Tokens, self.tokens.wait(tokens)),
        ];
        let longest = waits.into_iter().max_by_key(|(_, wait)| *wait);
        if let Some((resource, retry_after)) = longest
            && !retry_after.is_zero()
        {
            return Some(Exhausted {
                resource,
                retry_after,
                // The state does not know whose it is.
                is_of_key: false,
            });
        }
        self.requests.take(1.0);
        self.tokens.take(tokens);
        None
    }
}

impl Levels {
    fn each(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.configured.iter_mut().chain(&mut self.reported)
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.configured.iter().chain(&self.reported)
    }

    fn configure(&mut self, quota: Option<Quota>, burst: f64, now: Duration) {
        let Some(quota) = quota else {
            self.configured = None;
            return;
        };
        let full = Bucket::full(quota, burst, now);
        match &mut self.configured {
            // Another version of the program may have another limit.
            Some(bucket) => bucket.resize(full),
            None => self.configured = Some(full),
        }
    }

    /// Returns what is left of the configured limit and of the reported one, by these names, and
    /// the configured limit itself.
    fn amounts(
        &self,
        quota: Option<Quota>,
        [own, reported]: [&'static str; 2],
        what: &str,
    ) -> impl Iterator<Item = Amount> {
        let limit = quota.map(|Quota { limit, period }| {
            Amount::new(format!("{what} allowed in {period:?}"), limit as f64)
        });
        let own = self.configured.map(|bucket| bucket.left(own));
        let reported = self.reported.map(|bucket| bucket.left(reported));
        own.into_iter().chain(limit).chain(reported)
    }

    fn refill(&mut self, now: Duration) {
        self.reported = self.reported.filter(|bucket| bucket.is_believed(now));
        self.each().for_each(|bucket| bucket.refill(now));
    }

    fn wait(&self, units: f64) -> Duration {
        let waits = self.buckets().map(|bucket| bucket.wait(units));
        waits.max().unwrap_or_default()
    }

    fn take(&mut self, units: f64) {
        self.each().for_each(|bucket| bucket.take(units));
    }

    fn give_back(&mut self, units: f64) {
        self.each().for_each(|bucket| bucket.give_back(units));
    }

    fn learn(&mut self, report: Reported, now: Duration) {
        let Some(remaining) = report.remaining else {
            return;
        };
        let remaining = remaining as f64;
        let known = self.reported;
        let limit = match report.limit {
            Some(limit) => limit as f64,
            None => known.map_or(remaining, |bucket| bucket.capacity().max(remaining)),
        };
        let used = limit - remaining;
        // No provider says how long its period is. What is used comes back until the reset.
        let rate = match report.reset {
            Some(reset) if !reset.is_zero() && used > 0.0 => used / reset.as_secs_f64(),
            _ => known.map_or(limit / PERIOD.as_secs_f64(), |bucket| bucket.rate()),
        };
        // Calls that have begun meanwhile are in the own count alone, and those of others in the
        // provider's: the lower one is right about what may still be used.
        let level = known.map_or(remaining, |bucket| bucket.level().min(remaining));
        self.reported = Some(Bucket::reported(level, limit, rate, now));
    }
}
