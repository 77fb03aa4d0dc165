use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::retry::budget::Budget;

use super::delay::Delay;
use tower_agent::ModelRequest;

/// The settings of a layer.
#[derive(Clone)]
pub(super) struct HedgePlan {
    pub(super) fixed: Duration,
    pub(super) delay: Arc<Delay>,
    pub(super) budget: Arc<dyn Budget + Send + Sync>,
    pub(super) may_hedge: Arc<dyn Fn(&ModelRequest) -> bool + Send + Sync>,
}

impl fmt::Debug for HedgePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgePlan")
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}
