use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use crate::lock::lock;

/// The number of calls that a percentile is taken of.
const CALLS: usize = 200;

/// The number of calls until a percentile says anything.
const ENOUGH: usize = 20;

/// The time after which a second attempt starts.
#[derive(Debug)]
pub(super) struct Delay {
    fixed: Duration,
    percentile: Option<f64>,
    observed: Mutex<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    /// The times to the first output, oldest first.
    recent: VecDeque<Duration>,
    /// The same, shortest first.
    sorted: Vec<Duration>,
}

impl Delay {
    pub(super) fn new(fixed: Duration, percentile: Option<f64>) -> Self {
        Self {
            fixed,
            percentile,
            observed: Mutex::default(),
        }
    }

    pub(super) fn next(&self) -> Duration {
        let Some(percentile) = self.percentile else {
            return self.fixed;
        };
        let observed = lock(&self.observed);
        let len = observed.sorted.len();
        if len < ENOUGH {
            return self.fixed;
        }
        let index = (len as f64 * percentile) as usize;
        observed.sorted[index.min(len - 1)]
    }

    /// Notes the time to the first output of an attempt; of one that was dropped without, the time
    /// until then. Without those the percentile would fall, and every call would have two attempts
    /// in the end.
    pub(super) fn observe(&self, time: Duration) {
        if self.percentile.is_none() {
            return;
        }
        let observed = &mut *lock(&self.observed);
        if observed.recent.len() == CALLS
            && let Some(oldest) = observed.recent.pop_front()
            && let Ok(index) = observed.sorted.binary_search(&oldest)
        {
            observed.sorted.remove(index);
        }
        observed.recent.push_back(time);
        let index = observed.sorted.partition_point(|other| *other < time);
        observed.sorted.insert(index, time);
    }
}
