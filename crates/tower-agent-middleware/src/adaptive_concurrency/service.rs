use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tower::Service;

use super::controller::AdaptiveSettings;
use super::limits::{AdaptiveLimits, AdmittedCall};
use crate::key_of::KeyOf;
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
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The one that was polled ready waits with the call.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        let limits = self.limits.clone();
        let entry = enter(limits, self.key.clone(), self.settings.clone(), request);
        ResponseFuture {
            state: ConcurrencyState::Waiting {
                entry: Box::pin(entry),
                inner,
            },
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
) -> Result<(AdmittedCall<R>, R)> {
    let key = match key {
        Some(key) => {
            let key = key(request.context());
            key.map_err(|error| error.with_call(CallSite::of(&request)))?
        }
        None => String::new(),
    };
    let limit = limits.of(&key, &settings);
    let open = limit.enter(&request, settings).await?;
    Ok((open, request))
}

pin_project! {
    /// The future of an [`AdaptiveConcurrency`].
    pub struct ResponseFuture<S, R>
    where
        S: Service<R>,
        R: Request,
    {
        #[pin]
        state: ConcurrencyState<S, R>,
    }
}

pin_project! {
    #[project = ConcurrencyStateProjection]
    enum ConcurrencyState<S, R>
    where
        S: Service<R>,
        R: Request,
    {
        Waiting {
            entry: BoxFuture<'static, Result<(AdmittedCall<R>, R)>>,
            inner: S,
        },
        // The future is dropped before the place is free.
        Called {
            #[pin]
            future: S::Future,
            open: Option<AdmittedCall<R>>,
        },
    }
}

impl<S, R> Future for ResponseFuture<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                ConcurrencyStateProjection::Waiting { entry, inner } => {
                    let (open, request) = ready!(entry.as_mut().poll(cx))?;
                    let future = inner.call(request);
                    state.set(ConcurrencyState::Called {
                        future,
                        open: Some(open),
                    });
                }
                ConcurrencyStateProjection::Called { future, open } => {
                    let polled = future.poll(cx);
                    if let Some(open) = open {
                        open.look();
                    }
                    let result = ready!(polled).map_err(|error| Error::from(error.into()));
                    if let Some(open) = open.take() {
                        open.end(result.as_ref().err());
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
    R: Request,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
