use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tower::Service;

use super::limiter::{Limiter, RatePermit};
use super::metered::Metered;
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
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The one that was polled ready waits with the call.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        ResponseFuture {
            state: RateLimitState::Waiting {
                admission: Box::pin(self.limiter.clone().admit(request)),
                inner,
            },
        }
    }
}

pin_project! {
    /// The future of a [`RateLimit`].
    pub struct ResponseFuture<S, R>
    where
        S: Service<R>,
        R: Metered,
    {
        #[pin]
        state: RateLimitState<S, R>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum RateLimitState<S, R>
    where
        S: Service<R>,
        R: Metered,
    {
        Waiting {
            admission: BoxFuture<'static, Result<RatePermit<R>>>,
            inner: S,
        },
        // The future is dropped before the permit, which then knows what was received.
        Called {
            #[pin]
            future: S::Future,
            permit: Option<RatePermit<R>>,
        },
    }
}

impl<S, R> Future for ResponseFuture<S, R>
where
    R: Metered,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Waiting { admission, inner } => {
                    let permit = ready!(admission.as_mut().poll(cx))?;
                    let future = inner.call(permit.request());
                    state.set(RateLimitState::Called {
                        future,
                        permit: Some(permit),
                    });
                }
                StateProjection::Called { future, permit } => {
                    let result = ready!(future.poll(cx));
                    let result = result.map_err(|error| Error::from(error.into()));
                    if let Some(permit) = permit.take() {
                        match &result {
                            Ok(response) => permit.succeed(response),
                            Err(error) => permit.fail(error),
                        }
                    }
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl<S, R> fmt::Debug for ResponseFuture<S, R>
where
    S: Service<R>,
    R: Metered,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
