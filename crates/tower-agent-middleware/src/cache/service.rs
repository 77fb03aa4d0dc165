use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tower::Service;

use super::flight::Responses;
use super::key::{CacheKey, Hash};
use super::replay::Cacheable;
use tower_agent::RunContext;
use tower_agent::error::{BoxError, CallSite, Error, ErrorKind, Result};

/// Returns the tenant of a run.
pub(super) type TenantOf = dyn Fn(&RunContext) -> Result<String> + Send + Sync;

/// A service that replays responses to equal calls; created by [`CacheLayer`](super::CacheLayer).
/// Clones share their responses.
pub struct Cache<S, R: Cacheable> {
    inner: S,
    tenant: Arc<TenantOf>,
    responses: Arc<Responses<R>>,
}

impl<S, R: Cacheable> Cache<S, R> {
    pub(super) fn new(inner: S, tenant: Arc<TenantOf>, responses: Arc<Responses<R>>) -> Self {
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
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The one that was polled ready makes the call, here or once another caller is gone.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        let tenant = self.tenant.clone();
        let responses = self.responses.clone();
        let future = async move {
            let tenant = tenant(request.context())?;
            match key_of(&request, &tenant)? {
                Some(key) => responses.answer(key, inner, request).await,
                None => {
                    let result = inner.call(request).await;
                    result.map_err(|error| Error::from(error.into()))
                }
            }
        };
        ResponseFuture {
            future: Box::pin(future),
        }
    }
}

/// Returns the key of a call, or `None` if it must not be cached.
fn key_of<R: Cacheable>(request: &R, tenant: &str) -> Result<Option<CacheKey>> {
    if tenant.is_empty() {
        let message = "the tenant of this call is empty; its response could be another's";
        let error = Error::new(ErrorKind::InvalidRequest, message);
        return Err(error.with_call(CallSite::of(request)));
    }
    let mut hash = Hash::default();
    hash.add(tenant)?;
    let is_cacheable = request.identify(&mut hash)?;
    Ok(is_cacheable.then(|| hash.into_key()))
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

pin_project! {
    /// The future of a [`Cache`].
    pub struct ResponseFuture<T> {
        future: BoxFuture<'static, Result<T>>,
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().future.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
