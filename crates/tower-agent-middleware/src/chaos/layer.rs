use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tower_layer::Layer;

use super::cut::cut;
use super::plan::{Faults, Seed, Share};
use super::service::{Chaos, ChaosSettings};
use tower_agent::ModelRequest;
use tower_agent::error::Error;

/// Makes calls fail on purpose; [`Chaos`] is the service. Clones share the number of the next call.
///
/// Without any fault it changes nothing. A share is that of the calls which have the fault, from 0
/// to 1; a call may have several.
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent::{Error, ErrorKind, ToolRequest};
/// use tower_agent_middleware::chaos::ChaosLayer;
///
/// let layer = ChaosLayer::<ToolRequest>::new(7)
///     .delay(0.5, Duration::from_secs(2))
///     .fail(0.1, Error::new(ErrorKind::Overloaded, "busy"))
///     .lose(0.05);
/// # drop(layer);
/// ```
#[must_use = "a layer does nothing until it is layered"]
pub struct ChaosLayer<R> {
    settings: ChaosSettings<R>,
}

impl<R> ChaosLayer<R> {
    /// Creates a layer whose faults follow from this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            settings: ChaosSettings {
                seed: Seed::new(seed),
                faults: Faults::default(),
                cut: None,
                request: PhantomData,
            },
        }
    }

    /// Delays calls by a time up to `most`, before they are made.
    pub fn delay(mut self, share: f64, most: Duration) -> Self {
        self.settings.faults.delay = Share::new(share, most);
        self
    }

    /// Lets calls hang: they are not made, and never end.
    pub fn hang(mut self, share: f64) -> Self {
        self.settings.faults.hang = Share::new(share, ());
        self
    }

    /// Refuses calls as a provider does that has had too many: with
    /// [`RateLimited`](tower_agent::ErrorKind::RateLimited), the status 429 and this time as
    /// [`retry_after`](Error::retry_after). They are not made.
    pub fn refuse(mut self, share: f64, retry_after: Duration) -> Self {
        self.settings.faults.refuse = Share::new(share, retry_after);
        self
    }

    /// Fails calls with this error. They are not made.
    pub fn fail(mut self, share: f64, error: Error) -> Self {
        self.settings.faults.fail = Share::new(share, Some(error));
        self
    }

    /// Loses the responses of calls that were made: they fail with
    /// [`Connection`](tower_agent::ErrorKind::Connection).
    pub fn lose(mut self, share: f64) -> Self {
        self.settings.faults.lose = Share::new(share, ());
        self
    }

    /// Reorders calls: holds the ends of some back for a time up to `most`, so that calls which
    /// began later end before them.
    pub fn hold_back(mut self, share: f64, most: Duration) -> Self {
        self.settings.faults.hold_back = Share::new(share, most);
        self
    }
}

impl ChaosLayer<ModelRequest> {
    /// Cuts streams after a number of deltas up to `most`, or at their end if they have fewer: the
    /// attempt fails with [`Connection`](tower_agent::ErrorKind::Connection). A call that is not
    /// streamed loses its response.
    ///
    /// A call is cut once: a retry inside this layer, which makes another attempt, can succeed.
    pub fn cut(mut self, share: f64, most: usize) -> Self {
        self.settings.faults.cut = Share::new(share, most);
        self.settings.cut = Some(cut);
        self
    }
}

impl<S, R> Layer<S> for ChaosLayer<R> {
    type Service = Chaos<S, R>;

    fn layer(&self, inner: S) -> Chaos<S, R> {
        Chaos::new(inner, self.settings.clone())
    }
}

impl<R> Clone for ChaosLayer<R> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
        }
    }
}

impl<R> fmt::Debug for ChaosLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChaosLayer")
            .field("settings", &self.settings)
            .finish()
    }
}
