use std::task::{Context, Poll};

use futures_util::TryFutureExt;
use futures_util::future::MapErr;
use tower::Service;
use tower::retry;

use super::policy::Policy;
use crate::opaque_future::opaque_future;
use crate::ours::ours;
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
            inner: self.0.call(request),
        }
    }
}

opaque_future! {
    /// The future of a [`CallRetry`].
    pub struct ResponseFuture<S, R>(retry::future::ResponseFuture<Policy, Ours<S>, R>)
        -> Result<R::Response>
    where {
        R: Request,
        S: Service<R, Response = R::Response>,
        S::Error: Into<BoxError>,
    } and {
        S: Clone,
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
    type Future = MapErr<S::Future, fn(S::Error) -> Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.0.call(request).map_err(ours)
    }
}
