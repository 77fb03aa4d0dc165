use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::bucket::Quota;
use super::limiter::Limiter;
use super::service::RateLimit;
use super::store::RateStore;
use crate::key_of::key_of;
use tower_agent::RunContext;
use tower_agent::error::Result;
use tower_agent::gauge::{Gauge, Reading};

/// Limits the rate of calls and of their tokens; [`RateLimit`] is the service. Clones share their
/// limits.
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent_middleware::rate_limit::RateLimitLayer;
///
/// let minute = Duration::from_secs(60);
/// let layer = RateLimitLayer::new()
///     .requests(500, minute)
///     .tokens(200_000, minute)
///     .max_wait(Duration::from_secs(20));
/// # drop(layer);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is layered"]
pub struct RateLimitLayer {
    limiter: Limiter,
}

impl RateLimitLayer {
    /// Creates a layer without limits of its own: it keeps those that a provider reports.
    pub fn new() -> Self {
        Self {
            limiter: Limiter::new(),
        }
    }

    /// Limits the number of calls in a period.
    pub fn requests(mut self, limit: u64, period: Duration) -> Self {
        self.limiter.quotas.requests = Some(Quota::new(limit, period));
        self
    }

    /// Limits the number of tokens in a period, those of the input and the output together.
    ///
    /// A call that needs more than may be used at once goes when nothing is used, and those after
    /// it wait for as long as its tokens take.
    pub fn tokens(mut self, limit: u64, period: Duration) -> Self {
        self.limiter.quotas.tokens = Some(Quota::new(limit, period));
        self
    }

    /// Sets the share of a limit that may be used at once, up to 0.5. Defaults to 0.04.
    ///
    /// The rest of a limit comes back evenly over its period. A larger share makes fewer calls wait
    /// after a pause, and leaves less for the time after it.
    pub fn burst(mut self, share: f64) -> Self {
        self.limiter.quotas.burst = share.clamp(0.0, 0.5);
        self
    }

    /// Sets the number of output tokens that a call reserves if its request sets no maximum.
    /// Defaults to 1,000.
    pub fn reservation(mut self, tokens: u64) -> Self {
        self.limiter.reservation = tokens;
        self
    }

    /// Sets the longest time that a call waits. Defaults to 60 s. A call that would have to wait
    /// longer fails at once; with a time of zero every call does that is above the limit.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.limiter.max_wait = wait;
        self
    }

    /// Gives each key limits of its own, such as those of a customer. The error of `key` fails the
    /// call, and so does a key of more than 512 bytes.
    ///
    /// In memory, 100,000 keys are remembered: beyond that, the least recently used of those that
    /// have used something begin anew.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_agent::RunContext;
    /// use tower_agent_middleware::rate_limit::RateLimitLayer;
    ///
    /// struct Customer(String);
    ///
    /// let layer = RateLimitLayer::new()
    ///     .requests(20, Duration::from_secs(60))
    ///     .by(|run: &RunContext| Ok(run.extension::<Customer>()?.0.clone()));
    /// # drop(layer);
    /// ```
    pub fn by(
        mut self,
        key: impl Fn(&RunContext) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        self.limiter.limit_of = Some(key_of(key));
        self
    }

    /// Lets calls that wait for one limit go in turns of their keys, so that each key gets as many
    /// tokens as the others, whatever the number and the size of its calls. Without tokens, keys
    /// get as many calls. The error of `key` fails the call.
    ///
    /// Turns are taken in one process: a [store](Self::shared_in) shares limits, and not the queue.
    pub fn fair_by(
        mut self,
        key: impl Fn(&RunContext) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        self.limiter.line_of = Some(key_of(key));
        self
    }

    /// Keeps the limits in a store under this name, so that processes
    /// [share](crate::rate_limit#limits-that-processes-share) them. Defaults to memory, shared by
    /// clones of the layer.
    ///
    /// Layers with the same name share what is used: give layers of different limits different
    /// names.
    pub fn shared_in(mut self, store: impl RateStore, name: impl AsRef<str>) -> Self {
        self.limiter.set_store(Arc::new(store), name.as_ref());
        self
    }
}

/// Each limit that calls of this process use, or have used within a minute, has a reading, with the
/// number of those that wait here. What is left is that of all processes that
/// [share](RateLimitLayer::shared_in) it.
impl Gauge for RateLimitLayer {
    async fn read(&self, most: usize) -> Result<Vec<Reading>> {
        self.limiter.read(most).await
    }
}

impl Default for RateLimitLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.limiter.clone())
    }
}
