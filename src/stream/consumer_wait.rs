use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// Measures the time that a run has waited for its consumer since this was created.
///
/// For a layer with its own timeout: a slow consumer is not the model's fault. Created by
/// [`Request::consumer_wait`](crate::Request::consumer_wait).
#[derive(Debug, Default)]
pub struct ConsumerWait(Option<(Arc<Clock>, Duration)>);

impl ConsumerWait {
    /// Returns the total time.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let measured = self.0.as_ref();
        measured.map_or(Duration::ZERO, |(clock, start)| clock.elapsed() - *start)
    }
}

impl Drop for ConsumerWait {
    fn drop(&mut self) {
        if let Some((clock, _)) = &self.0 {
            // The counter only says whether to measure; the times themselves are under the lock.
            clock.watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Adds up the time spent waiting for a consumer, while it is being measured.
#[derive(Debug, Default)]
pub(super) struct Clock {
    watchers: AtomicUsize,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    total: Duration,
    now: usize,
    /// The start of the first of them: concurrent waits count once.
    since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Pause(Arc<Clock>);

impl Clock {
    pub(super) fn watch(self: &Arc<Self>) -> ConsumerWait {
        // Counted before the clock is read, so that a wait which begins in between is measured.
        self.watchers.fetch_add(1, Ordering::Relaxed);
        ConsumerWait(Some((self.clone(), self.elapsed())))
    }

    #[inline]
    pub(super) fn pause(self: &Arc<Self>) -> Option<Pause> {
        // Nobody measures in most runs: they read no clock and take no lock for an event.
        let is_watched = self.watchers.load(Ordering::Relaxed) > 0;
        is_watched.then(|| {
            let mut waits = lock(&self.waits);
            waits.now += 1;
            waits.since.get_or_insert_with(Instant::now);
            Pause(self.clone())
        })
    }

    fn elapsed(&self) -> Duration {
        let waits = lock(&self.waits);
        waits.total + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut waits = lock(&self.0.waits);
        waits.now -= 1;
        if waits.now == 0
            && let Some(since) = waits.since.take()
        {
            waits.total += since.elapsed();
        }
    }
}
