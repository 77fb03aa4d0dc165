use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use super::controller::AdaptiveSettings;
use super::limits::{AdaptiveLimits, ConcurrencyPermit};
use crate::admission::{Queued, take_ready};
use crate::key_of::KeyOf;
use crate::opaque_future::opaque_future;
use crate::ours::ours;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, CallSite, Error, Result};

/// A service that limits how many calls run at a time; created by
/// [`AdaptiveConcurrencyLayer`](super::AdaptiveConcurrencyLayer). Clones share their limits.
#[derive(Clone)]
pub struct AdaptiveConcurrency<S> {
    inner: S,
    settings: AdaptiveSettings,
    key: Option<KeyOf>,
    limits: Arc<AdaptiveLimits>,
}

impl<S> AdaptiveConcurrency<S> {
    pub(super) fn new(
        inner: S,
        settings: AdaptiveSettings,
        key: Option<KeyOf>,
        limits: Arc<AdaptiveLimits>,
    ) -> Self {
        Self {
            inner,
            settings,
            key,
            limits,
        }
    }
}

impl<S, R> Service<R> for AdaptiveConcurrency<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Clone,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let limits = self.limits.clone();
        let admission = enter(limits, self.key.clone(), self.settings.clone(), request);
        ResponseFuture {
            inner: Queued::behind(admission, take_ready(&mut self.inner)),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for AdaptiveConcurrency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveConcurrency")
            .field("inner", &self.inner)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Waits for a place.
async fn enter<R: Request>(
    limits: Arc<AdaptiveLimits>,
    key: Option<KeyOf>,
    settings: AdaptiveSettings,
    request: R,
) -> Result<(R, ConcurrencyPermit<R>)> {
    let key = match key {
        Some(key) => {
            let key = key(request.context());
            key.map_err(|error| error.with_call(CallSite::of(&request)))?
        }
        None => String::new(),
    };
    let limit = limits.of(&key, &settings);
    let permit = limit.enter(&request, settings).await?;
    Ok((request, permit))
}

opaque_future! {
    /// The future of an [`AdaptiveConcurrency`].
    pub struct ResponseFuture<S, R>(Queued<S, R, ConcurrencyPermit<R>>) -> Result<R::Response>
    where {
        S: Service<R>,
        R: Request,
    } and {
        S: Service<R, Response = R::Response, Error: Into<BoxError>>,
    }
}
