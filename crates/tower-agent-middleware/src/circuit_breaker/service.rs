use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use super::circuit::{CircuitPermit, CircuitSettings, Circuits};
use crate::admission::Decided;
use crate::opaque_future::opaque_future;
use crate::ours::ours;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, CallSite, Error, Result};

/// A service that stops calling what keeps failing; created by
/// [`CircuitBreakerLayer`](super::CircuitBreakerLayer). Clones share their circuits.
#[derive(Clone, Debug)]
pub struct CircuitBreaker<S> {
    inner: S,
    circuits: Arc<Circuits>,
    settings: CircuitSettings,
}

impl<S> CircuitBreaker<S> {
    pub(super) fn new(inner: S, circuits: Arc<Circuits>, settings: CircuitSettings) -> Self {
        Self {
            inner,
            circuits,
            settings,
        }
    }
}

impl<S, R> Service<R> for CircuitBreaker<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let key = request.name().map(Arc::from);
        let call = match self.circuits.admit(key, &self.settings) {
            Ok(permit) => Ok((self.inner.call(request), permit)),
            Err(refusal) => Err(Error::from(refusal).with_call(CallSite::of(&request))),
        };
        ResponseFuture {
            inner: Decided::new(call),
        }
    }
}

opaque_future! {
    /// The future of a [`CircuitBreaker`].
    pub struct ResponseFuture<S, R>(Decided<S::Future, CircuitPermit>) -> Result<R::Response>
    where {
        S: Service<R>,
        R: Request,
    } and {
        S: Service<R, Response = R::Response, Error: Into<BoxError>>,
    }
}
