use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::headers::Report;
use super::metered::Metered;
use super::queue::{Queue, Ticket};
use super::state::{Change, Quotas, RateChange};
use super::store::{Memory, RateStore};
use crate::admission::Permit;
use crate::bounds;
use crate::key_of::KeyOf;
use crate::keyed::{Keyed, Need};
use crate::lock::lock;
use tower_agent::error::{CallSite, Error, ErrorKind, Result};
use tower_agent::gauge::{Amount, Reading};

/// The resolution of `tokio`'s timers.
const TICK: Duration = Duration::from_millis(1);

/// The settings of a layer, and the limits that its clones share.
#[derive(Clone)]
pub(super) struct Limiter {
    pub(super) quotas: Quotas,
    pub(super) reservation: u64,
    pub(super) max_wait: Duration,
    /// The key of the limit, in addition to the name.
    pub(super) limit_of: Option<KeyOf>,
    /// The key of the line in the queue.
    pub(super) line_of: Option<KeyOf>,
    /// The name in the store.
    name: Arc<str>,
    pub(super) store: Arc<dyn RateStore>,
    queues: Arc<Mutex<Queues>>,
}

/// The queues of the limits that are in use, or were a short while ago.
#[derive(Debug, Default)]
struct Queues(Keyed<Arc<str>, LimitQueue>);

#[derive(Debug)]
struct LimitQueue {
    queue: Weak<Queue>,
    /// The key that the limit is of.
    of: Option<Arc<str>>,
    /// The time of the last call.
    used: Instant,
}

impl Queues {
    fn of(&mut self, limit: &Arc<str>, of: Option<&Arc<str>>) -> Arc<Queue> {
        let now = Instant::now();
        if let Some(known) = self.0.get_mut(limit) {
            known.used = now;
            return known.queue.upgrade().unwrap_or_else(|| {
                let queue = Arc::<Queue>::default();
                known.queue = Arc::downgrade(&queue);
                queue
            });
        }
        let queue = Arc::<Queue>::default();
        let known = LimitQueue {
            queue: Arc::downgrade(&queue),
            of: of.cloned(),
            used: now,
        };
        self.0.insert(limit.clone(), known, |known| {
            if known.queue.strong_count() > 0 {
                Need::Calls
            } else if now - known.used < SHOWN {
                Need::Memory
            } else {
                Need::Nothing
            }
        });
        queue
    }
}

/// The time for which a limit is shown that no call uses.
const SHOWN: Duration = Duration::from_secs(60);

impl Limiter {
    pub(super) fn new() -> Self {
        Self {
            quotas: Quotas {
                requests: None,
                tokens: None,
                burst: 0.04,
            },
            reservation: 1_000,
            max_wait: Duration::from_secs(60),
            limit_of: None,
            line_of: None,
            name: "rate limit".into(),
            store: Arc::new(Memory::new()),
            queues: Arc::default(),
        }
    }

    pub(super) fn set_store(&mut self, store: Arc<dyn RateStore>, name: &str) {
        self.store = store;
        // Quoted, so that no key makes one limit of two: that of `a/b`, and that of `b` in `a`.
        self.name = format!("{name:?}").into();
        // The calls of the limit before do not wait for this one.
        self.queues = Arc::default();
    }

    /// Waits until the call may be made.
    pub(super) async fn admit<R: Metered>(self, request: R) -> Result<(R, RatePermit<R>)> {
        let of: Option<Arc<str>> = match &self.limit_of {
            Some(key) => Some(key(request.context())?.into()),
            None => None,
        };
        let limit: Arc<str> = match &of {
            Some(of) => format!("{}/{of}", self.name).into(),
            None => self.name.clone(),
        };
        let line: Arc<str> = match &self.line_of {
            Some(key) => key(request.context())?.into(),
            None => Arc::default(),
        };
        let prompt = request.prompt_tokens();
        let output = request.max_output_tokens().unwrap_or(self.reservation);
        let reserved = prompt.saturating_add(output);
        let queue = lock(&self.queues).of(&limit, of.as_ref());
        let ticket = queue.enter(line.clone());
        let take = RateChange(Change::Take {
            quotas: self.quotas,
            tokens: reserved,
        });
        let admitted = self.wait(&ticket, &limit, &take).await;
        admitted.map_err(|error| error.with_call(CallSite::of(&request)))?;
        // Without tokens, keys take turns by their calls.
        ticket.pass(reserved.max(1));
        let permit = RatePermit {
            store: self.store,
            queue,
            limit,
            line,
            prompt,
            reserved,
            unfinished: request.unfinished_tokens(),
            request: request.clone(),
            is_settled: false,
        };
        Ok((request, permit))
    }

    /// Returns the states of the limits that calls of this process use, or have used lately, those
    /// with the most calls that wait first.
    pub(super) async fn read(&self, most: usize) -> Result<Vec<Reading>> {
        let mut limits = Vec::new();
        {
            let queues = lock(&self.queues);
            let waiting =
                |known: &LimitQueue| known.queue.upgrade().map_or(0, |queue| queue.waiting());
            for (limit, known) in queues.0.highest(most, waiting) {
                limits.push((limit.clone(), known.of.clone(), waiting(known)));
            }
        }
        if limits.is_empty() && self.limit_of.is_none() {
            limits.push((self.name.clone(), None, 0));
        }
        let mut readings = Vec::with_capacity(limits.len());
        for (limit, of, waiting) in limits {
            let (state, now) = self.store.read(&limit).await?;
            let mut reading = state.reading(&self.quotas, now);
            reading.of = of;
            if waiting > 0 {
                reading = reading.with(Amount::new("calls waiting", waiting as f64));
            }
            readings.push(reading);
        }
        Ok(readings)
    }

    async fn wait(&self, ticket: &Ticket, limit: &str, take: &RateChange) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = self.max_wait.saturating_sub(start.elapsed());
            // At the end of its time a call tries out of turn, and is told how long to wait.
            if !left.is_zero() && !ticket.is_first() {
                // Woken or not, it looks again.
                let _ = timeout(left, ticket.woken()).await;
                continue;
            }
            let Some(mut exhausted) = self.store.update(limit, take.clone()).await? else {
                return Ok(());
            };
            exhausted.is_of_key = self.limit_of.is_some();
            if exhausted.retry_after > left {
                return Err(exhausted.into());
            }
            let pause = exhausted.retry_after.max(TICK);
            let _ = timeout(pause, ticket.woken()).await;
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("name", &self.name)
            .field("requests", &self.quotas.requests)
            .field("tokens", &self.quotas.tokens)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

/// A call that was let through, until it has ended.
pub(super) struct RatePermit<R: Metered> {
    store: Arc<dyn RateStore>,
    queue: Arc<Queue>,
    limit: Arc<str>,
    line: Arc<str>,
    request: R,
    prompt: u64,
    reserved: u64,
    /// The tokens that attempts of before this call had received.
    unfinished: u64,
    is_settled: bool,
}

impl<R: Metered> RatePermit<R> {
    fn succeed(&mut self, response: &R::Response) {
        // Tokens that no one has counted are those that were reserved.
        let used = R::usage(response)
            .known()
            .map_or(self.reserved, |usage| usage.total());
        let report = R::metadata(response).map(Report::read).unwrap_or_default();
        self.settle(used, false, report, None);
    }

    fn fail(&mut self, error: &Error) {
        let used = match error.kind() {
            // It may have been cut while the model worked for it.
            ErrorKind::Timeout | ErrorKind::Cancelled => self.cut(),
            _ => 0,
        };
        // Nobody else has to find out for themselves.
        let closed_for = error
            .retry_after()
            .filter(|_| error.kind() == ErrorKind::RateLimited)
            .map(bounds::wait);
        let report = Report::read(error.metadata());
        self.settle(used, error.is_ending(), report, closed_for);
    }

    /// Returns what a call has used that has no end.
    fn cut(&self) -> u64 {
        let received = self.request.unfinished_tokens();
        let received = received.saturating_sub(self.unfinished);
        self.prompt.saturating_add(received)
    }

    fn settle(
        &mut self,
        used: u64,
        gives_request_back: bool,
        report: Report,
        closed_for: Option<Duration>,
    ) {
        self.is_settled = true;
        let change = RateChange(Change::Settle {
            gives_request_back,
            reserved: self.reserved,
            used,
            report,
            closed_for,
        });
        self.store.update_later(&self.limit, change);
        self.queue.settle(&self.line, self.reserved, used);
    }
}

impl<R: Metered> Permit<R::Response> for RatePermit<R> {
    fn end(mut self, result: Result<&R::Response, &Error>) {
        match result {
            Ok(response) => self.succeed(response),
            Err(error) => self.fail(error),
        }
    }
}

impl<R: Metered> Drop for RatePermit<R> {
    fn drop(&mut self) {
        if !self.is_settled {
            let used = self.cut();
            self.settle(used, false, Report::default(), None);
        }
    }
}

impl<R: Metered> fmt::Debug for RatePermit<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RatePermit")
            .field("limit", &self.limit)
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}
