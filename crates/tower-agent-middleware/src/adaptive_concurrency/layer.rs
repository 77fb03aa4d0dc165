use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::controller::AdaptiveSettings;
use super::limits::AdaptiveLimits;
use super::service::AdaptiveConcurrency;
use crate::key_of::{KeyOf, key_of};
use tower_agent::RunContext;
use tower_agent::error::Result;
use tower_agent::gauge::{Gauge, Reading};

/// Limits how many calls run at a time, by how the provider bears them; [`AdaptiveConcurrency`] is
/// the service. Clones share their limits.
///
/// ```
/// use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
///
/// let layer = AdaptiveConcurrencyLayer::new().initial(16).most(500);
/// # drop(layer);
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is layered"]
pub struct AdaptiveConcurrencyLayer {
    settings: AdaptiveSettings,
    key: Option<KeyOf>,
    limits: Arc<AdaptiveLimits>,
}

impl AdaptiveConcurrencyLayer {
    /// Creates a layer that starts with 4 calls at a time.
    pub fn new() -> Self {
        Self {
            settings: AdaptiveSettings {
                initial: 4,
                most: 1_000,
                tolerance: 2.0,
            },
            key: None,
            limits: Arc::default(),
        }
    }

    /// Sets the number of calls to start with. Defaults to 4; at least 1.
    pub fn initial(mut self, calls: usize) -> Self {
        self.settings.initial = calls;
        self
    }

    /// Sets the number of calls that the limit cannot exceed. Defaults to 1,000; at least 1.
    pub fn most(mut self, calls: usize) -> Self {
        self.settings.most = calls;
        self
    }

    /// Sets how many times longer than usual the average wait for the first output may be before
    /// the limit falls. Defaults to 2; [`f64::INFINITY`] looks at refusals alone.
    ///
    /// The wait also depends on the length of the prompt: where that varies a lot, take more.
    pub fn tolerance(mut self, times: f64) -> Self {
        self.settings.tolerance = times;
        self
    }

    /// Gives each key a limit of its own, such as each region. The error of `key` fails the call.
    pub fn by(
        mut self,
        key: impl Fn(&RunContext) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        self.key = Some(key_of(key));
        self
    }

    /// Returns the current limit of a key; without [`by`](Self::by), that of the empty one.
    #[must_use]
    pub fn limit(&self, key: &str) -> usize {
        let current = self.limits.current(key);
        current.unwrap_or_else(|| self.settings.first())
    }
}

impl Gauge for AdaptiveConcurrencyLayer {
    async fn read(&self, most: usize) -> Result<Vec<Reading>> {
        Ok(self.limits.readings(&self.settings, most))
    }
}

impl Default for AdaptiveConcurrencyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for AdaptiveConcurrencyLayer {
    type Service = AdaptiveConcurrency<S>;

    fn layer(&self, inner: S) -> AdaptiveConcurrency<S> {
        AdaptiveConcurrency::new(
            inner,
            self.settings.clone(),
            self.key.clone(),
            self.limits.clone(),
        )
    }
}

impl fmt::Debug for AdaptiveConcurrencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveConcurrencyLayer")
            .field("settings", &self.settings)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
