use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::circuit::{CircuitSettings, Circuits};
use super::service::CircuitBreaker;
use crate::key_of::{KeyOf, key_of};
use tower_agent::RunContext;
use tower_agent::error::{Error, Result};
use tower_agent::gauge::{Gauge, Reading};

/// Stops calling what keeps failing; [`CircuitBreaker`] is the service. Clones share their
/// circuits.
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent::{Agent, BoxError, ErrorKind, Tool};
/// use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
/// use tower_agent_middleware::timeout::CallTimeoutLayer;
///
/// # fn agent(model: tower_agent_test::ScriptedModel, search: Tool) -> Result<Agent, BoxError> {
/// // A tool's own errors count as well, since those of this tool mean that it is down.
/// let breaker = CircuitBreakerLayer::new()
///     .failure_if(|error| error.is_retryable() || error.kind() == ErrorKind::Tool);
/// let search = search.layer(CallTimeoutLayer::new(Duration::from_secs(10))).layer(breaker);
/// let agent = Agent::builder(model).tool(search).build()?;
/// # Ok(agent)
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is layered"]
pub struct CircuitBreakerLayer {
    key: Option<KeyOf>,
    circuits: Arc<Circuits>,
    settings: CircuitSettings,
}

impl CircuitBreakerLayer {
    /// Creates a layer that opens a circuit after 5 failures in a row, for 30 s.
    pub fn new() -> Self {
        Self {
            key: None,
            circuits: Arc::default(),
            settings: CircuitSettings::new(5, Duration::from_secs(30)),
        }
    }

    /// Sets the number of failures in a row after which a circuit opens. Defaults to 5; at least 1.
    pub fn failures(mut self, failures: u32) -> Self {
        self.settings.failures = failures;
        self
    }

    /// Sets the time after which one call tests an open circuit. Defaults to 30 s. If the last
    /// error has a longer [`retry_after`](Error::retry_after), that is used, up to an hour.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.settings.pause = pause;
        self
    }

    /// Gives each key circuits of its own, such as each user or tenant, so that the failures of one
    /// stop nobody else. The error of `key` fails the call, and so does a key of more than 512
    /// bytes.
    ///
    /// Where errors can only be those of one person, such as where each brings a provider's key
    /// along, no other breaker is needed. Where they can also be everybody's, put one without keys
    /// inside that counts those alone, such as timeouts: see [`failure_if`](Self::failure_if).
    ///
    /// The failures of 100,000 keys are remembered; beyond that, the least recently used ones begin
    /// anew.
    ///
    /// ```
    /// use tower_agent::RunContext;
    /// use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
    ///
    /// struct Tenant(String);
    ///
    /// let layer = CircuitBreakerLayer::new()
    ///     .by(|run: &RunContext| Ok(run.extension::<Tenant>()?.0.clone()));
    /// # drop(layer);
    /// ```
    pub fn by(
        mut self,
        key: impl Fn(&RunContext) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        self.key = Some(key_of(key));
        self
    }

    /// Sets which errors are failures of what was called. Defaults to those that are
    /// [retryable](Error::is_retryable).
    ///
    /// Other errors count as successes: they show that it works. The error of a tool is not
    /// retryable unless it says so, because the tool may only have refused the arguments.
    /// `predicate` is not called for an abort, an interrupt, an end of the invocation, a cancelled
    /// call, an unknown tool or a [limit by key](crate::rate_limit::RateLimitLayer::by) inside that
    /// is used up, none of which is judged a failure.
    pub fn failure_if(
        mut self,
        predicate: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.settings.is_failure = Arc::new(predicate);
        self
    }
}

/// A circuit has a reading once it has failed.
impl Gauge for CircuitBreakerLayer {
    async fn read(&self, most: usize) -> Result<Vec<Reading>> {
        Ok(self.circuits.readings(&self.settings, most))
    }
}

impl Default for CircuitBreakerLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for CircuitBreakerLayer {
    type Service = CircuitBreaker<S>;

    fn layer(&self, inner: S) -> CircuitBreaker<S> {
        CircuitBreaker::new(
            inner,
            self.key.clone(),
            self.circuits.clone(),
            self.settings.clone(),
        )
    }
}

impl fmt::Debug for CircuitBreakerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakerLayer")
            .field("circuits", &self.circuits)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
