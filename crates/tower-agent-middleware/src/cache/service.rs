use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::Service;

use super::flight::Responses;
use super::key::{CallKey, Identity};
use super::replay::Cacheable;
use crate::admission::take_ready;
use crate::key_of::KeyOf;
use crate::opaque_future::opaque_future;
use crate::ours::ours;
use tower_agent::error::{BoxError, CallSite, Error, ErrorKind, Result};

/// A service that replays responses to equal calls; created by [`CacheLayer`](super::CacheLayer).
/// Clones share their responses.
pub struct Cache<S, R: Cacheable> {
    inner: S,
    tenant: KeyOf,
    responses: Arc<Responses<R>>,
}

impl<S, R: Cacheable> Cache<S, R> {
    pub(super) fn new(inner: S, tenant: KeyOf, responses: Arc<Responses<R>>) -> Self {
        Self {
            inner,
            tenant,
            responses,
        }
    }
}

impl<S, R> Service<R> for Cache<S, R>
where
    R: Cacheable,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<R::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The one that was polled ready makes the call, here or once another caller is gone.
        let mut inner = take_ready(&mut self.inner);
        let tenant = self.tenant.clone();
        let responses = self.responses.clone();
        let future = async move {
            let tenant = tenant(request.context())?;
            match key_of(&request, &tenant)? {
                Some(key) => responses.answer(key, inner, request).await,
                None => inner.call(request).await.map_err(ours),
            }
        };
        ResponseFuture {
            inner: Box::pin(future),
        }
    }
}

/// Returns the key of a call, or `None` if it must not be cached.
fn key_of<R: Cacheable>(request: &R, tenant: &str) -> Result<Option<CallKey>> {
    if tenant.is_empty() {
        let message = "the tenant of this call is empty; its response could be another's";
        let error = Error::new(ErrorKind::InvalidRequest, message);
        return Err(error.with_call(CallSite::of(request)));
    }
    let mut identity = Identity::new(request.context());
    identity.add(tenant)?;
    let is_cacheable = request.identify(&mut identity)?;
    is_cacheable.then(|| identity.into_key()).transpose()
}

impl<S: Clone, R: Cacheable> Clone for Cache<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            tenant: self.tenant.clone(),
            responses: self.responses.clone(),
        }
    }
}

impl<S: fmt::Debug, R: Cacheable> fmt::Debug for Cache<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("inner", &self.inner)
            .field("responses", &self.responses)
            .finish_non_exhaustive()
    }
}

opaque_future! {
    /// The future of a [`Cache`].
    pub struct ResponseFuture<T>(BoxFuture<'static, Result<T>>) -> Result<T>
}
