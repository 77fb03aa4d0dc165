use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower_layer::Layer;

use super::life;
use super::list::Callbacks;
use crate::call::{BoxCallFuture, Request};
use crate::error::{BoxError, Error, Result};

/// A service inside a band of callbacks; created by [`Callbacks`].
#[derive(Clone)]
pub struct CallbackService<S, R: Request> {
    inner: S,
    callbacks: Callbacks<R>,
}

impl<S, R: Request> CallbackService<S, R> {
    /// Wraps `inner` in `callbacks`.
    pub fn new(inner: S, callbacks: Callbacks<R>) -> Self {
        Self { inner, callbacks }
    }
}

impl<S, R: Request> Layer<S> for Callbacks<R> {
    type Service = CallbackService<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        CallbackService::new(inner, self.clone())
    }
}

impl<S, R> Service<R> for CallbackService<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // An empty list costs no box.
        if self.callbacks.is_empty() {
            return ResponseFuture {
                state: BandState::Passed {
                    future: self.inner.call(request),
                },
            };
        }
        // The service that was polled ready goes with the call; its unready clone stays.
        let unready = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, unready);
        let future = life::run(None, self.callbacks.clone(), request, ready, true);
        ResponseFuture {
            state: BandState::Banded {
                future: Box::pin(future),
            },
        }
    }
}

impl<S: fmt::Debug, R: Request> fmt::Debug for CallbackService<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackService")
            .field("inner", &self.inner)
            .field("callbacks", &self.callbacks)
            .finish()
    }
}

pin_project! {
    /// The future of a [`CallbackService`].
    pub struct ResponseFuture<F, R: Request> {
        #[pin]
        state: BandState<F, R>,
    }
}

pin_project! {
    #[project = Projected]
    enum BandState<F, R: Request> {
        Passed { #[pin] future: F },
        Banded { #[pin] future: BoxCallFuture<R> },
    }
}

impl<F, E, R> Future for ResponseFuture<F, R>
where
    R: Request,
    F: Future<Output = Result<R::Response, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::Passed { future } => {
                Poll::Ready(ready!(future.poll(cx)).map_err(|error| Error::from(error.into())))
            }
            Projected::Banded { future } => future.poll(cx),
        }
    }
}

impl<F, R: Request> fmt::Debug for ResponseFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
