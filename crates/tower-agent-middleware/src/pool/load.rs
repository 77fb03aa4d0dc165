use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use tower_agent::gauge::Amount;

/// The time in which an estimate loses about two thirds of its weight.
const DECAY: Duration = Duration::from_secs(10);

/// The least wait that a failure counts as.
const FAILURE: Duration = Duration::from_secs(1);

/// The longest wait that failures add up to.
const MOST: Duration = Duration::from_secs(60);

/// The load of an endpoint: its open calls, times the wait for the first output.
#[derive(Debug)]
pub(super) struct EndpointLoad(Mutex<LoadState>);

#[derive(Debug)]
struct LoadState {
    /// The calls that have not ended.
    open: u32,
    /// The calls without output so far, by their start.
    waiting: BTreeSet<(Instant, u64)>,
    begun: u64,
    wait: PeakEwma,
    /// The time at which a call failed last.
    failed_at: Option<Instant>,
}

/// An average of waits that rises at once and falls slowly.
#[derive(Debug)]
struct PeakEwma {
    seconds: f64,
    at: Instant,
}

/// The cost of one more call. Only its order means something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndpointCost(f64);

impl PartialOrd for EndpointCost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.total_cmp(&other.0))
    }
}

impl EndpointLoad {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LoadState {
            open: 0,
            waiting: BTreeSet::new(),
            begun: 0,
            wait: PeakEwma {
                seconds: 0.0,
                at: Instant::now(),
            },
            failed_at: None,
        }))
    }

    pub(super) fn cost(&self) -> EndpointCost {
        let state = lock(&self.0);
        let now = Instant::now();
        // A call that waits longer than usual tells about the endpoint before it ends, if it ever
        // does.
        let oldest = state.waiting.first();
        let oldest = oldest.map_or(Duration::ZERO, |(begun, _)| now - *begun);
        let wait = state.wait.now(now).max(oldest.as_secs_f64());
        // Of endpoints that nothing is known about, the one with the fewest calls is the cheapest.
        let wait = wait.max(f64::MIN_POSITIVE.sqrt());
        EndpointCost(wait * (f64::from(state.open) + 1.0))
    }

    /// Returns the open calls, and the wait for the first output.
    pub(super) fn amounts(&self) -> [Amount; 2] {
        let state = lock(&self.0);
        let wait = state.wait.now(Instant::now());
        [
            Amount::new("calls running", f64::from(state.open)),
            Amount::new("wait for the first output", wait).unit("s"),
        ]
    }

    /// Counts a call until it is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> PendingCall {
        let mut state = lock(&self.0);
        let begun = Instant::now();
        state.open += 1;
        state.begun += 1;
        let number = state.begun;
        state.waiting.insert((begun, number));
        PendingCall {
            load: self.clone(),
            begun,
            number,
            is_waiting: true,
        }
    }
}

impl PeakEwma {
    fn now(&self, now: Instant) -> f64 {
        self.seconds * self.weight(now)
    }

    fn weight(&self, now: Instant) -> f64 {
        (-(now - self.at).as_secs_f64() / DECAY.as_secs_f64()).exp()
    }

    fn add(&mut self, wait: Duration, now: Instant) {
        let wait = wait.as_secs_f64();
        let weight = self.weight(now);
        self.seconds = wait.max(self.seconds * weight + wait * (1.0 - weight));
        self.at = now;
    }

    /// Raises the average to a wait that was at least this long.
    fn raise(&mut self, wait: Duration, now: Instant) {
        if wait.as_secs_f64() > self.now(now) {
            self.add(wait, now);
        }
    }
}

/// A call that an endpoint has not ended.
#[derive(Debug)]
pub(super) struct PendingCall {
    load: Arc<EndpointLoad>,
    begun: Instant,
    number: u64,
    is_waiting: bool,
}

impl PendingCall {
    /// Notes the first output of the call, or its response.
    pub(super) fn answered(&mut self) {
        self.stop_waiting(|state, waited, now| state.wait.add(waited, now));
    }

    /// Notes that the call has failed: it counts as slow, however fast it was, since a fast failure
    /// would draw calls.
    pub(super) fn failed(mut self) {
        // Also where a part of it was seen.
        self.is_waiting = true;
        let begun = self.begun;
        self.stop_waiting(|state, waited, now| {
            // Each failure doubles the wait; those of calls that ran at the same time are one.
            let is_next = state.failed_at.is_none_or(|failed| failed <= begun);
            let times = if is_next { 2.0 } else { 1.0 };
            let more = Duration::try_from_secs_f64(times * state.wait.now(now)).unwrap_or(MOST);
            let penalty = more.min(MOST).max(FAILURE);
            state.wait.raise(waited.max(penalty), now);
            state.failed_at = Some(now);
        });
    }

    fn stop_waiting(&mut self, note: impl FnOnce(&mut LoadState, Duration, Instant)) {
        if !std::mem::take(&mut self.is_waiting) {
            return;
        }
        let mut state = lock(&self.load.0);
        let now = Instant::now();
        state.waiting.remove(&(self.begun, self.number));
        note(&mut state, now - self.begun, now);
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        // A call that was dropped while it waited would have taken longer still.
        self.stop_waiting(|state, waited, now| state.wait.raise(waited, now));
        lock(&self.load.0).open -= 1;
    }
}
