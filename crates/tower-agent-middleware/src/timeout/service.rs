use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::Service;

use super::clock::{CallLimits, Clock};
use crate::ours::ours;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, Error, Result};

/// The resolution of `tokio`'s timers.
const TICK: Duration = Duration::from_millis(1);

/// A service that limits the duration of calls; created by
/// [`CallTimeoutLayer`](super::CallTimeoutLayer).
///
/// A call that does not complete at once needs a `tokio` runtime with time enabled.
pub struct CallTimeout<S, R> {
    inner: S,
    limits: CallLimits<R>,
}

impl<S, R> CallTimeout<S, R> {
    pub(super) fn new(inner: S, limits: CallLimits<R>) -> Self {
        Self { inner, limits }
    }
}

impl<S, R> Service<R> for CallTimeout<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let clock = Clock::start(&mut request, &self.limits);
        ResponseFuture {
            future: self.inner.call(request),
            clock,
            sleep: None,
        }
    }
}

impl<S: Clone, R> Clone for CallTimeout<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            limits: self.limits,
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for CallTimeout<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTimeout")
            .field("inner", &self.inner)
            .field("limits", &self.limits)
            .finish()
    }
}

pin_project! {
    /// The future of a [`CallTimeout`].
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        future: F,
        clock: Clock,
        #[pin]
        sleep: Option<Sleep>,
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // The call before the clock: a response that is there is not late.
        if let Poll::Ready(result) = this.future.poll(cx) {
            return Poll::Ready(result.map_err(ours));
        }
        // A call that completes at once needs no timer. One timer at a time is enough: limits only
        // move later.
        loop {
            if let Some(sleep) = this.sleep.as_mut().as_pin_mut() {
                ready!(sleep.poll(cx));
            }
            match this.clock.left() {
                // At least a tick, so that a remainder below the timer's resolution does not spin.
                Ok(left) => this.sleep.set(Some(sleep(left.max(TICK)))),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
