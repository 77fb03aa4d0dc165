use std::fmt;
use std::future::pending;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::time::sleep;
use tower::Service;

use super::cut::Cut;
use super::plan::{Faults, Seed, broken};
use crate::admission::take_ready;
use crate::opaque_future::opaque_future;
use crate::ours::ours;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, CallSite, Error, Result};

/// The settings of a layer.
pub(super) struct ChaosSettings<R> {
    pub(super) seed: Seed,
    pub(super) faults: Faults,
    /// Cuts the stream of a call, if it can be streamed.
    pub(super) cut: Option<fn(&mut R, usize) -> Arc<Cut>>,
    pub(super) request: PhantomData<fn(R)>,
}

impl<R> Clone for ChaosSettings<R> {
    fn clone(&self) -> Self {
        Self {
            seed: self.seed.clone(),
            faults: self.faults.clone(),
            cut: self.cut,
            request: PhantomData,
        }
    }
}

impl<R> fmt::Debug for ChaosSettings<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChaosSettings")
            .field("seed", &self.seed)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

/// A service whose calls fail on purpose; created by [`ChaosLayer`](super::ChaosLayer). Clones
/// share the number of the next call.
///
/// Delays need a `tokio` runtime with time enabled.
pub struct Chaos<S, R> {
    inner: S,
    settings: ChaosSettings<R>,
}

impl<S, R> Chaos<S, R> {
    pub(super) fn new(inner: S, settings: ChaosSettings<R>) -> Self {
        Self { inner, settings }
    }
}

impl<S, R> Service<R> for Chaos<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<R::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let plan = self.settings.seed.next(&self.settings.faults);
        let site = CallSite::of(&request);
        if !plan.is_empty() {
            // Told, so that the log of a test that fails says why.
            tracing::debug!(call = %site, ?plan, "faults on purpose");
        }
        let cut_of = self.settings.cut.zip(plan.cut_after);
        let cut = cut_of.map(|(cut, after)| cut(&mut request, after));
        let mut inner = take_ready(&mut self.inner);
        let future = async move {
            if let Some(delay) = plan.delay {
                sleep(delay).await;
            }
            if plan.hangs {
                return pending().await;
            }
            if let Some(error) = plan.error {
                return Err(error.with_call(site));
            }
            let mut result = inner.call(request).await.map_err(ours);
            // A response that was cut off is that of a model which has not streamed it.
            let is_cut = cut.is_some_and(|cut| !cut.is_done());
            if result.is_ok() && (is_cut || plan.loses) {
                result = Err(broken().with_call(site));
            }
            if let Some(time) = plan.hold_back {
                sleep(time).await;
            }
            result
        };
        ResponseFuture {
            inner: Box::pin(future),
        }
    }
}

impl<S: Clone, R> Clone for Chaos<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Chaos<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chaos")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}

opaque_future! {
    /// The future of a [`Chaos`].
    pub struct ResponseFuture<T>(BoxFuture<'static, Result<T>>) -> Result<T>
}
