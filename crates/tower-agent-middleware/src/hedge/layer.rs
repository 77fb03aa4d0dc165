use std::sync::Arc;
use std::time::Duration;

use tower::retry::budget::{Budget, TpsBudget};
use tower_layer::Layer;

use super::delay::Delay;
use super::plan::HedgePlan;
use super::service::Hedge;
use tower_agent::ModelRequest;
use tower_agent::error::Result;
use tower_agent::gauge::{Amount, Gauge, Reading};

/// Starts a second attempt at a slow model call; [`Hedge`] is the service. Clones share the times
/// that they observe, and the budget.
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent_middleware::hedge::HedgeLayer;
///
/// // After 3 s, and once enough calls are known, when 95 of 100 have begun to answer.
/// let hedge = HedgeLayer::new(Duration::from_secs(3)).percentile(0.95);
/// # drop(hedge);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is layered"]
pub struct HedgeLayer {
    plan: HedgePlan,
}

impl HedgeLayer {
    /// Creates a layer that starts a second attempt when the first has had no output for this time.
    pub fn new(delay: Duration) -> Self {
        Self {
            plan: HedgePlan {
                fixed: delay,
                delay: Arc::new(Delay::new(delay, None)),
                budget: Arc::new(TpsBudget::new(Duration::from_secs(10), 3, 0.2)),
                may_hedge: Arc::new(|_| true),
            },
        }
    }

    /// Starts a second attempt when the first is slower than this share of the last 200 attempts,
    /// from 0 to 1. Until 20 are known, the fixed delay is used.
    pub fn percentile(mut self, share: f64) -> Self {
        self.plan.delay = Arc::new(Delay::new(self.plan.fixed, Some(share)));
        self
    }

    /// Sets the budget that limits the second attempts of all calls together: each call deposits,
    /// and each second attempt withdraws. Defaults to a [`TpsBudget`] of 3 attempts a second plus
    /// one for every five calls, counted over 10 s, so that a provider that is slow for everybody
    /// does not get twice the calls.
    pub fn budget(mut self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.plan.budget = Arc::new(budget);
        self
    }

    /// Sets which calls may have a second attempt. Defaults to all. A call with [tools that the
    /// provider runs](tower_agent::model::ServerTool) has one only if they do nothing but search
    /// and read the web, whatever `predicate` returns.
    pub fn hedge_if(
        mut self,
        predicate: impl Fn(&ModelRequest) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.plan.may_hedge = Arc::new(predicate);
        self
    }
}

/// It holds no call back: its number is the time after which a second attempt starts now.
impl Gauge for HedgeLayer {
    async fn read(&self, _: usize) -> Result<Vec<Reading>> {
        let delay = self.plan.delay.next().as_secs_f64();
        let delay = Amount::new("second attempt after", delay).unit("s");
        Ok(vec![Reading::new("hedge", "in use", true).with(delay)])
    }
}

impl<S> Layer<S> for HedgeLayer {
    type Service = Hedge<S>;

    fn layer(&self, inner: S) -> Hedge<S> {
        Hedge::new(inner, self.plan.clone())
    }
}
