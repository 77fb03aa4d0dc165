use std::task::{Context, Poll};

use tower::Service;

use super::limiter::{Limiter, RatePermit};
use super::metered::Metered;
use crate::admission::{Queued, take_ready};
use crate::opaque_future::opaque_future;
use crate::ours::ours;
use tower_agent::error::{BoxError, Error, Result};

/// A service that limits the rate of calls; created by [`RateLimitLayer`](super::RateLimitLayer).
/// Clones share their limits.
///
/// A call that waits needs a `tokio` runtime with time enabled.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    limiter: Limiter,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, limiter: Limiter) -> Self {
        Self { inner, limiter }
    }
}

impl<S, R> Service<R> for RateLimit<S>
where
    R: Metered,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Clone,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let admission = self.limiter.clone().admit(request);
        ResponseFuture {
            inner: Queued::behind(admission, take_ready(&mut self.inner)),
        }
    }
}

opaque_future! {
    /// The future of a [`RateLimit`].
    pub struct ResponseFuture<S, R>(Queued<S, R, RatePermit<R>>) -> Result<R::Response>
    where {
        S: Service<R>,
        R: Metered,
    } and {
        S: Service<R, Response = R::Response, Error: Into<BoxError>>,
    }
}
