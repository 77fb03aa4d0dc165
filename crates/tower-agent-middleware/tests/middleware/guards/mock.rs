//! Models that take their time, and count their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::service_fn;
use tower_agent::model::{BoxModel, ModelRequest, ModelResponse};
use tower_agent::stream::{Attempt, Delta, DeltaSender};
use tower_agent::{Error, ErrorKind, Result, Usage};

/// A model that begins after a time, and then says so many words, one in each step.
#[derive(Clone, Debug)]
pub(crate) struct Mock {
    name: &'static str,
    first: Duration,
    step: Duration,
    words: usize,
    /// The calls that fail, counted from 0, with their error.
    fails: Option<(Calls, Error)>,
    pub(crate) counts: Arc<Counts>,
}

/// Selects calls by their number.
type Calls = fn(usize) -> bool;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    calls: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

impl Counts {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(Ordering::SeqCst)
    }
}

impl Mock {
    pub(crate) fn new(name: &'static str, first: Duration) -> Self {
        Self {
            name,
            first,
            step: Duration::ZERO,
            words: 1,
            fails: None,
            counts: Arc::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Says more words, with this time between them.
    pub(crate) fn words(mut self, words: usize, step: Duration) -> Self {
        self.words = words;
        self.step = step;
        self
    }

    /// Fails these calls after the time to the first word.
    pub(crate) fn failing(mut self, fails: Calls, error: Error) -> Self {
        self.fails = Some((fails, error));
        self
    }

    pub(crate) fn model(&self) -> BoxModel {
        let mock = self.clone();
        BoxModel::new(service_fn(move |request| mock.clone().answer(request)))
    }

    async fn answer(self, request: ModelRequest) -> Result<ModelResponse> {
        let number = self.counts.calls.fetch_add(1, Ordering::SeqCst);
        let open = self.counts.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.counts.most_open.fetch_max(open, Ordering::SeqCst);
        let _open = Open(self.counts.clone());
        let sink = request.delta_sender();
        let mut attempt = sink.map_or_else(Attempt::unseen, DeltaSender::open);
        sleep(self.first).await;
        if let Some((fails, error)) = &self.fails
            && fails(number)
        {
            return Err(error.clone());
        }
        for word in 0..self.words {
            if word > 0 {
                sleep(self.step).await;
            }
            attempt.send(Delta::Text(format!("{} ", self.name))).await?;
        }
        let response = ModelResponse::from(attempt.finish().await?);
        Ok(response.with_usage(Usage::new(10, self.words as u64)))
    }
}

struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) fn refused() -> Error {
    Error::new(ErrorKind::RateLimited, "too many requests")
}

/// Returns the time that a share of the calls did not exceed.
pub(crate) fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort();
    times[(times.len() as f64 * share) as usize]
}

/// The time that a future takes.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let output = future.await;
    (start.elapsed(), output)
}
