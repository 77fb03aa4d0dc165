use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower::retry;

use super::policy::Policy;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, Error, Result};

/// A service that retries failed calls; created by [`CallRetryLayer`](super::CallRetryLayer).
///
/// Backoff needs a `tokio` runtime with time enabled.
#[derive(Clone, Debug)]
pub struct CallRetry<S>(retry::Retry<Policy, Ours<S>>);

impl<S> CallRetry<S> {
    pub(super) fn new(policy: Policy, inner: S) -> Self {
        Self(retry::Retry::new(policy, Ours(inner)))
    }
}

impl<S, R> Service<R> for CallRetry<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Clone,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Service::<R>::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        ResponseFuture {
            future: self.0.call(request),
        }
    }
}

pin_project! {
    /// The future of a [`CallRetry`].
    pub struct ResponseFuture<S, R>
    where
        R: Request,
        S: Service<R, Response = R::Response>,
        S::Error: Into<BoxError>,
    {
        #[pin]
        future: retry::future::ResponseFuture<Policy, Ours<S>, R>,
    }
}

impl<S, R> Future for ResponseFuture<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Clone,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().future.poll(cx)
    }
}

impl<S, R> fmt::Debug for ResponseFuture<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Converts the inner service's errors to [`Error`], for the policy to read.
#[derive(Clone, Debug)]
pub(super) struct Ours<S>(S);

impl<S, R> Service<R> for Ours<S>
where
    S: Service<R, Error: Into<BoxError>>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = OursFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        OursFuture {
            future: self.0.call(request),
        }
    }
}

pin_project! {
    #[derive(Debug)]
    pub(super) struct OursFuture<F> {
        #[pin]
        future: F,
    }
}

impl<F, T, E> Future for OursFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.project().future.poll(cx));
        Poll::Ready(result.map_err(|error| Error::from(error.into())))
    }
}
