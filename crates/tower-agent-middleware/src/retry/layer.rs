use std::time::Duration;

use tower::retry::budget::Budget;
use tower::util::rng::Rng;
use tower_layer::Layer;

use super::policy::Policy;
use super::service::CallRetry;
use tower_agent::error::Error;

/// Retries failed calls; [`CallRetry`] is the service. Clones share one retry budget.
///
/// ```
/// use std::time::Duration;
/// use tower_agent::ErrorKind;
/// use tower_agent_middleware::retry::CallRetryLayer;
///
/// let retry = CallRetryLayer::new()
///     .max_attempts(5)
///     .backoff(Duration::from_millis(200), Duration::from_secs(10))
///     .retry_if(|error| error.kind() == ErrorKind::RateLimited);
/// # drop(retry);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a layer does nothing until it is layered"]
pub struct CallRetryLayer {
    policy: Policy,
}

impl CallRetryLayer {
    /// Creates a layer that makes up to three attempts, at [retryable](Error::is_retryable) errors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of attempts, the first included. Defaults to 3; at least 1.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.policy.config().attempts = attempts;
        self
    }

    /// Sets the backoff: before each attempt the layer waits a random time between zero and an
    /// upper bound. The bound starts at `base` and doubles with each attempt up to `max`. Defaults
    /// to 500 ms and 30 s.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        let config = self.policy.config();
        config.base = base;
        config.max = max;
        self
    }

    /// Sets the longest [`retry_after`](Error::retry_after) that is honoured. If a server asks for
    /// a longer wait, the call is not retried. Defaults to 60 s.
    pub fn max_retry_after(mut self, max: Duration) -> Self {
        self.policy.config().max_retry_after = max;
        self
    }

    /// Sets the budget that limits the retries of all calls together. Defaults to a
    /// [`TpsBudget`](tower::retry::budget::TpsBudget) of 3 retries a second plus one for every five
    /// successes, counted over 10 s.
    pub fn budget(mut self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.policy.set_budget(budget);
        self
    }

    /// Sets the source of the backoff's random numbers, for tests that need known values. Defaults
    /// to the run's own [chance](tower_agent::RunContext::chance).
    pub fn rng(mut self, rng: impl Rng + Send + 'static) -> Self {
        self.policy.set_rng(rng);
        self
    }

    /// Sets which errors are retried. Defaults to those that are [retryable](Error::is_retryable).
    /// `predicate` is never called for an abort, an interrupt or an end of the invocation. A
    /// response that is no answer, where the agent does not accept one, is a retryable error of
    /// kind [`InvalidAnswer`](tower_agent::ErrorKind::InvalidAnswer) to it.
    ///
    /// A tool's own error type is unknown to this crate, so list here the errors that are worth a
    /// retry:
    ///
    /// ```
    /// use std::io;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// use tower_agent_middleware::retry::CallRetryLayer;
    /// # use tower_agent_test::{ScriptedModel, Turn};
    /// use tower_agent::{Agent, Effect, Tool};
    ///
    /// # static CALLS: AtomicU32 = AtomicU32::new(0);
    /// # async fn fetch(_: String) -> io::Result<String> {
    /// #     match CALLS.fetch_add(1, Ordering::Relaxed) {
    /// #         0 => Err(io::ErrorKind::TimedOut.into()),
    /// #         _ => Ok("page".into()),
    /// #     }
    /// # }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let model = ScriptedModel::new([Turn::tool("fetch", "x".into()), Turn::from_text("Read.")]);
    /// let retry = CallRetryLayer::new().retry_if(|error| {
    ///     let io = error.downcast_ref::<io::Error>();
    ///     error.is_retryable() || io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut)
    /// });
    /// let fetch = Tool::function("fetch", "Fetches a page.", fetch).effect(Effect::Pure);
    /// let agent = Agent::builder(model).tool(fetch).tool_layer(retry).build()?;
    /// # agent.run("Read it.").await?;
    /// # assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_if(mut self, predicate: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.policy.set_retries(predicate);
        self
    }

    /// Sets whether to retry a call after output was streamed; the stream then emits
    /// [`AttemptDiscarded`](tower_agent::stream::EventKind::AttemptDiscarded). Defaults to `false`.
    pub fn restart_streams(mut self, restart: bool) -> Self {
        self.policy.config().restart_streams = restart;
        self
    }
}

impl<S> Layer<S> for CallRetryLayer {
    type Service = CallRetry<S>;

    fn layer(&self, inner: S) -> CallRetry<S> {
        CallRetry::new(self.policy.clone(), inner)
    }
}
