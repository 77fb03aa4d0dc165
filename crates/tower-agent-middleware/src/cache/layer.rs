use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::flight::Responses;
use super::replay::Cacheable;
use super::service::Cache;
use crate::key_of::{KeyOf, key_of};
use tower_agent::RunContext;
use tower_agent::error::Result;
use tower_agent::gauge::{Amount, Gauge, Reading};

/// Replays responses to equal calls, and makes equal calls at the same time once; [`Cache`] is the
/// service. Clones share their responses.
///
/// The key of a call does not name the service inside: use a layer of its own for each model.
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent::{ModelRequest, RunContext};
/// use tower_agent_middleware::cache::CacheLayer;
///
/// struct Customer(String);
///
/// let layer = CacheLayer::<ModelRequest>::new(|run: &RunContext| {
///     Ok(run.extension::<Customer>()?.0.clone())
/// });
/// let layer = layer.entries(10_000).time_to_live(Duration::from_secs(3_600));
/// # drop(layer);
/// ```
#[must_use = "a layer does nothing until it is layered"]
pub struct CacheLayer<R: Cacheable> {
    tenant: KeyOf,
    entries: u64,
    time_to_live: Duration,
    responses: Arc<Responses<R>>,
}

impl<R: Cacheable> CacheLayer<R> {
    /// Creates a layer that finds the tenant of each run with `tenant`. No response is replayed to
    /// another tenant; a call without one fails, with the error of `tenant` or because it is empty.
    ///
    /// Return the same name for all of them to share responses between all.
    pub fn new(tenant: impl Fn(&RunContext) -> Result<String> + Send + Sync + 'static) -> Self {
        let entries = 1_000;
        let time_to_live = Duration::from_secs(600);
        Self {
            tenant: key_of(tenant),
            entries,
            time_to_live,
            responses: Arc::new(Responses::new(entries, time_to_live)),
        }
    }

    /// Sets the number of responses that are kept. Those that are used least go first. Defaults to
    /// 1,000; with 0, equal calls at the same time are still made once.
    pub fn entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self.renewed()
    }

    /// Sets the time for which a response is replayed. Defaults to 10 minutes.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = time;
        self.renewed()
    }

    fn renewed(self) -> Self {
        let responses = Arc::new(Responses::new(self.entries, self.time_to_live));
        Self { responses, ..self }
    }
}

impl<S, R: Cacheable> Layer<S> for CacheLayer<R> {
    type Service = Cache<S, R>;

    fn layer(&self, inner: S) -> Cache<S, R> {
        Cache::new(inner, self.tenant.clone(), self.responses.clone())
    }
}

/// It holds no call back: its numbers are those of all tenants.
impl<R: Cacheable> Gauge for CacheLayer<R> {
    async fn read(&self, _: usize) -> Result<Vec<Reading>> {
        let kept = Amount::new("responses kept", self.responses.kept() as f64);
        let running = Amount::new("calls running", self.responses.running() as f64);
        let reading = Reading::new("cache", "in use", true);
        Ok(vec![
            reading.with(kept.limit(self.entries as f64)).with(running),
        ])
    }
}

impl<R: Cacheable> Clone for CacheLayer<R> {
    fn clone(&self) -> Self {
        Self {
            tenant: self.tenant.clone(),
            entries: self.entries,
            time_to_live: self.time_to_live,
            responses: self.responses.clone(),
        }
    }
}

impl<R: Cacheable> fmt::Debug for CacheLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayer")
            .field("responses", &self.responses)
            .field("entries", &self.entries)
            .field("time_to_live", &self.time_to_live)
            .finish_non_exhaustive()
    }
}
