use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use tower_agent::call::Request;
use tower_agent::error::{CallSite, Error, ErrorKind, Result};
use tower_agent::model::ModelRequest;
use tower_agent::stream::{ConsumerWait, Delta, Mapper};

/// Measures time, without the time spent waiting for the consumer.
#[derive(Debug)]
struct Stopwatch {
    start: Instant,
    wait: ConsumerWait,
}

impl Stopwatch {
    fn start<R: Request>(request: &R) -> Self {
        Self {
            start: Instant::now(),
            wait: request.consumer_wait(),
        }
    }

    fn elapsed(&self) -> Duration {
        // Saturating: the two are read one after the other.
        self.start.elapsed().saturating_sub(self.wait.elapsed())
    }
}

/// The progress of a streamed response.
#[derive(Debug)]
pub(super) struct Deltas {
    stopwatch: Stopwatch,
    progress: Mutex<Progress>,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    Nothing,
    /// Time of the last progress, on the stopwatch.
    Delta(Duration),
    Done,
}

impl Deltas {
    fn note(&self, progress: Progress) {
        *lock(&self.progress) = progress;
    }

    fn alive(&self) {
        self.note(Progress::Delta(self.stopwatch.elapsed()));
    }

    fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    /// Starts an attempt. Any attempt but the first counts as progress.
    fn begin(&self) {
        if !matches!(self.progress(), Progress::Nothing) {
            self.alive();
        }
    }
}

/// Observes the deltas of a streamed call, before callbacks outside this layer change them.
pub(super) fn watch(request: &mut ModelRequest) -> Option<Arc<Deltas>> {
    request.delta_sender()?;
    let stopwatch = Stopwatch::start(request);
    let deltas = Arc::new(Deltas {
        stopwatch,
        progress: Mutex::new(Progress::Nothing),
    });
    // In a band of its own: a mapper outside may hold deltas back, which is not the model's delay.
    request.enter_band();
    let seen = deltas.clone();
    request.map_deltas(move || {
        seen.begin();
        Seen(seen.clone())
    });
    Some(deltas)
}

struct Seen(Arc<Deltas>);

impl Mapper for Seen {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        self.0.alive();
        out.push(delta);
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<Delta>) -> Result<()> {
        self.0.note(Progress::Done);
        Ok(())
    }
}

/// The limits of a layer.
pub(super) struct CallLimits<R> {
    pub(super) whole: Duration,
    pub(super) first_delta: Option<Duration>,
    pub(super) idle: Option<Duration>,
    /// Observes the call's deltas, if it has any.
    pub(super) watch: Option<Watch<R>>,
}

type Watch<R> = fn(&mut R) -> Option<Arc<Deltas>>;

impl<R> Copy for CallLimits<R> {}

impl<R> Clone for CallLimits<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> fmt::Debug for CallLimits<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimits")
            .field("whole", &self.whole)
            .field("first_delta", &self.first_delta)
            .field("idle", &self.idle)
            .finish()
    }
}

/// The limits of one call and the time used so far.
#[derive(Debug)]
pub(super) struct Clock {
    site: CallSite,
    stopwatch: Stopwatch,
    whole: Duration,
    first_delta: Option<Duration>,
    idle: Option<Duration>,
    deltas: Option<Arc<Deltas>>,
}

impl Clock {
    pub(super) fn start<R: Request>(request: &mut R, limits: &CallLimits<R>) -> Self {
        Self {
            site: CallSite::of(request),
            whole: limits.whole,
            first_delta: limits.first_delta,
            idle: limits.idle,
            deltas: limits.watch.and_then(|watch| watch(request)),
            stopwatch: Stopwatch::start(request),
        }
    }

    /// Returns the time until the next limit may be reached.
    pub(super) fn left(&self) -> Result<Duration> {
        let mut left = self.within(self.whole, self.stopwatch.elapsed(), |limit| {
            format!("no response within {limit:?} (limit for the whole call)")
        })?;
        let Some(deltas) = &self.deltas else {
            return Ok(left);
        };
        let now = deltas.stopwatch.elapsed();
        match (deltas.progress(), self.first_delta, self.idle) {
            (Progress::Nothing, Some(limit), _) => {
                left = left.min(self.within(limit, now, |limit| {
                    format!("no delta within {limit:?} (limit for the first delta)")
                })?);
            }
            (Progress::Delta(last), _, Some(limit)) => {
                left = left.min(self.within(limit, now.saturating_sub(last), |limit| {
                    format!("no delta for {limit:?} (limit between deltas)")
                })?);
            }
            _ => {}
        }
        // A delta may come from another task, which does not wake this one.
        Ok(self.idle.map_or(left, |idle| left.min(idle)))
    }

    fn within(
        &self,
        limit: Duration,
        elapsed: Duration,
        message: impl FnOnce(Duration) -> String,
    ) -> Result<Duration> {
        limit
            .checked_sub(elapsed)
            .filter(|left| !left.is_zero())
            .ok_or_else(|| {
                Error::new(ErrorKind::Timeout, message(limit)).with_call(self.site.clone())
            })
    }
}
