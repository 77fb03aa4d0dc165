use std::time::Duration;

use tower::retry::budget::Budget;
use tower::util::rng::Rng;
use tower_layer::Layer;

use super::CallRetry;
use super::policy::Policy;
use crate::error::Error;

/// Makes a failed call again; [`CallRetry`] is the service. Clones share their budget.
///
/// ```
/// use std::time::Duration;
/// use tower_agent::ErrorKind;
/// use tower_agent::middleware::retry::CallRetryLayer;
///
/// let retry = CallRetryLayer::new()
///     .with_attempts(5)
///     .with_backoff(Duration::from_millis(200), Duration::from_secs(10))
///     .retry_if(|error| error.kind() == ErrorKind::RateLimited);
/// # drop(retry);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a layer does nothing until it is layered"]
pub struct CallRetryLayer {
    policy: Policy,
}

impl CallRetryLayer {
    /// Three attempts in all, at errors that are [retryable](Error::is_retryable).
    pub fn new() -> Self {
        Self::default()
    }

    /// How many attempts may be made, the first included: 3 unless told, 1 at least.
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.policy.config().attempts = attempts;
        self
    }

    /// How long to wait before an attempt: a random time from nothing up to `base`, which doubles
    /// with each attempt up to `max`. 500 ms and 30 s unless told.
    pub fn with_backoff(mut self, base: Duration, max: Duration) -> Self {
        let config = self.policy.config();
        (config.base, config.max) = (base, max);
        self
    }

    /// The longest wait that a server may [ask for](Error::retry_after): 60 s unless told. If it
    /// asks for more, no other attempt is made.
    pub fn with_max_retry_after(mut self, max: Duration) -> Self {
        self.policy.config().max_retry_after = max;
        self
    }

    /// What keeps the retries of all calls together within bounds: a
    /// [`TpsBudget`](tower::retry::budget::TpsBudget) of 3 a second and one for every five
    /// successes, counted over 10 s, unless told.
    pub fn with_budget(mut self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.policy.set_budget(budget);
        self
    }

    /// Where the backoff's random numbers come from; for a test that must know them.
    pub fn with_rng(mut self, rng: impl Rng + Send + 'static) -> Self {
        self.policy.set_rng(rng);
        self
    }

    /// After which errors to make the call again: retryable ones unless told. It is not asked
    /// about endings.
    ///
    /// A tool's own failure is of a type that nobody else knows, so say here which to try again:
    ///
    /// ```
    /// use std::io;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// use tower_agent::middleware::retry::CallRetryLayer;
    /// # use tower_agent::testing::{ScriptedModel, Turn};
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
        self.policy.set_when(predicate);
        self
    }

    /// Whether to make a call again of which something has been seen; the stream then says that
    /// it is void. Not unless told.
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
