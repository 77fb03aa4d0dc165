use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use super::circuit::{CircuitKey, CircuitPermit, CircuitSettings, Circuits};
use crate::admission::Decided;
use crate::key_of::KeyOf;
use crate::opaque_future::opaque_future;
use crate::ours::ours;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, CallSite, Error, Result};

/// A service that stops calling what keeps failing; created by
/// [`CircuitBreakerLayer`](super::CircuitBreakerLayer). Clones share their circuits.
#[derive(Clone)]
pub struct CircuitBreaker<S> {
    inner: S,
    key: Option<KeyOf>,
    circuits: Arc<Circuits>,
    settings: CircuitSettings,
}

impl<S> CircuitBreaker<S> {
    pub(super) fn new(
        inner: S,
        key: Option<KeyOf>,
        circuits: Arc<Circuits>,
        settings: CircuitSettings,
    ) -> Self {
        Self {
            inner,
            key,
            circuits,
            settings,
        }
    }

    fn admit<R: Request>(&self, request: &R) -> Result<CircuitPermit> {
        let of = match &self.key {
            Some(key) => Some(key(request.context())?.into()),
            None => None,
        };
        let name = request.name().map(Arc::from);
        let key = CircuitKey { name, of };
        Ok(self.circuits.admit(key, &self.settings)?)
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
        let call = match self.admit(&request) {
            Ok(permit) => Ok((self.inner.call(request), permit)),
            Err(error) => Err(error.with_call(CallSite::of(&request))),
        };
        ResponseFuture {
            inner: Decided::new(call),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for CircuitBreaker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("inner", &self.inner)
            .field("circuits", &self.circuits)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
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
