use std::fmt;
use std::time::Duration;

use tower_layer::Layer;

use super::clock::{self, CallLimits};
use super::service::CallTimeout;
use tower_agent::call::Request;
use tower_agent::model::ModelRequest;

/// Fails calls that take too long; [`CallTimeout`] is the service. The call type `R` is inferred
/// from where the layer is used.
#[must_use = "a layer does nothing until it is layered"]
pub struct CallTimeoutLayer<R> {
    limits: CallLimits<R>,
}

impl<R: Request> CallTimeoutLayer<R> {
    /// Limits the total duration of a call. To limit one tool, give the layer to
    /// [`Tool::layer`](tower_agent::Tool::layer).
    pub fn new(limit: Duration) -> Self {
        Self {
            limits: CallLimits {
                whole: limit,
                first_delta: None,
                idle: None,
                watch: None,
            },
        }
    }
}

impl CallTimeoutLayer<ModelRequest> {
    /// Limits the time from the start of a streamed call to its first delta. Defaults to the limit
    /// of the whole call.
    pub fn first_delta(mut self, limit: Duration) -> Self {
        self.limits.first_delta = Some(limit);
        // Only with such a limit, since a mapper costs something for every delta.
        self.limits.watch = Some(clock::watch);
        self
    }

    /// Limits the time between two deltas of a streamed call, and between the last delta and the
    /// end. Defaults to the limit of the whole call.
    pub fn idle(mut self, limit: Duration) -> Self {
        self.limits.idle = Some(limit);
        self.limits.watch = Some(clock::watch);
        self
    }
}

impl<S, R> Layer<S> for CallTimeoutLayer<R> {
    type Service = CallTimeout<S, R>;

    fn layer(&self, inner: S) -> CallTimeout<S, R> {
        CallTimeout::new(inner, self.limits)
    }
}

impl<R> Clone for CallTimeoutLayer<R> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits,
        }
    }
}

impl<R> fmt::Debug for CallTimeoutLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTimeoutLayer")
            .field("limits", &self.limits)
            .finish()
    }
}
