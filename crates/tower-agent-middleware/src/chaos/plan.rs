use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_agent::error::{Error, ErrorKind};
use tower_agent::message::Metadata;

/// The faults of a layer, each with the share of calls that have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) delay: Share<Duration>,
    pub(super) hang: Share<()>,
    pub(super) refuse: Share<Duration>,
    pub(super) fail: Share<Option<Error>>,
    pub(super) cut: Share<usize>,
    pub(super) lose: Share<()>,
    pub(super) hold_back: Share<Duration>,
}

/// A share of the calls, from 0 to 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Share<T> {
    share: f64,
    fault: T,
}

impl<T> Share<T> {
    pub(super) fn new(share: f64, fault: T) -> Self {
        Self { share, fault }
    }

    /// Returns the fault if the call has it, and the part of it.
    fn draw(&self, chance: &mut Chance) -> Option<(&T, f64)> {
        // Both are drawn always, so that one fault more leaves the others where they are.
        let is_drawn = chance.next() < self.share;
        let part = chance.next();
        is_drawn.then_some((&self.fault, part))
    }
}

/// The seed of a layer, and the number of calls of it and its clones.
#[derive(Clone, Debug)]
pub(super) struct Seed {
    seed: u64,
    calls: Arc<AtomicU64>,
}

impl Seed {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            calls: Arc::default(),
        }
    }

    /// Returns the faults of the next call.
    pub(super) fn next(&self, faults: &Faults) -> Plan {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Mixed twice, so that neighbouring seeds do not have each other's calls.
        let mut chance = Chance(Chance(self.seed).next_u64() ^ call);
        chance = Chance(chance.next_u64());
        Plan::draw(faults, &mut chance)
    }
}

/// SplitMix64: the same numbers in every version of this crate.
struct Chance(u64);

impl Chance {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to 1.
    fn next(&mut self) -> f64 {
        // As many bits as a float has.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The faults of one call.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The wait before the call.
    pub(super) delay: Option<Duration>,
    pub(super) hangs: bool,
    /// The error of a call that is not made.
    pub(super) error: Option<Error>,
    /// The number of deltas after which its stream breaks off.
    pub(super) cut_after: Option<usize>,
    pub(super) loses: bool,
    /// The wait after the call.
    pub(super) hold_back: Option<Duration>,
}

impl Plan {
    fn draw(faults: &Faults, chance: &mut Chance) -> Self {
        let delay = faults.delay.draw(chance);
        let hang = faults.hang.draw(chance);
        let refusal = faults.refuse.draw(chance);
        let failure = faults.fail.draw(chance);
        let cut = faults.cut.draw(chance);
        let loss = faults.lose.draw(chance);
        let hold_back = faults.hold_back.draw(chance);
        let refusal = refusal.map(|(wait, _)| refused(*wait));
        let failure = failure.and_then(|(error, _)| error.clone());
        Self {
            delay: delay.map(|(most, part)| most.mul_f64(part)),
            hangs: hang.is_some(),
            error: refusal.or(failure),
            // Before the first delta and behind the last are among them.
            cut_after: cut.map(|(most, part)| (part * (*most as f64 + 1.0)) as usize),
            loses: loss.is_some(),
            hold_back: hold_back.map(|(most, part)| most.mul_f64(part)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self {
            delay,
            hangs,
            error,
            cut_after,
            loses,
            hold_back,
        } = self;
        let has_wait = delay.is_some() || hold_back.is_some();
        !has_wait && !hangs && error.is_none() && cut_after.is_none() && !loses
    }
}

/// Returns the error of a provider that has had too many requests.
fn refused(wait: Duration) -> Error {
    let mut metadata = Metadata::default();
    metadata.status = Some(429);
    Error::new(ErrorKind::RateLimited, "too many requests (on purpose)")
        .with_retry_after(wait)
        .with_metadata(metadata)
}

/// Returns the error of a call whose connection broke.
pub(super) fn broken() -> Error {
    Error::new(ErrorKind::Connection, "the connection broke (on purpose)")
}
