use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::Service;

use super::cut::Cut;
use super::plan::{Faults, Plan, Seed, broken};
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

/// A service whose calls fail on purpose; created by [`ChaosLayer`](super::ChaosLayer). Clones share
/// the number of the next call.
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

    fn call(&mut self, mut request: R) -> Self::Future {
        let plan = self.settings.seed.next(&self.settings.faults);
        let site = CallSite::of(&request);
        if !plan.is_empty() {
            // Told, so that the log of a test that fails says why.
            tracing::debug!(call = %site, ?plan, "faults on purpose");
        }
        let cut_of = self.settings.cut.zip(plan.cut_after);
        let cut = cut_of.map(|(cut, after)| cut(&mut request, after));
        // The one that was polled ready waits with the call.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        ResponseFuture {
            sleep: plan.delay.map(sleep),
            state: ChaosState::Waiting {
                call: Some((inner, request)),
            },
            plan,
            cut,
            site,
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

pin_project! {
    /// The future of a [`Chaos`].
    pub struct ResponseFuture<S, R>
    where
        S: Service<R>,
        R: Request,
    {
        #[pin]
        state: ChaosState<S, R>,
        #[pin]
        sleep: Option<Sleep>,
        plan: Plan,
        cut: Option<Arc<Cut>>,
        site: CallSite,
    }
}

pin_project! {
    #[project = StateProjection]
    enum ChaosState<S, R>
    where
        S: Service<R>,
        R: Request,
    {
        Waiting {
            call: Option<(S, R)>,
        },
        Called {
            #[pin]
            future: S::Future,
        },
        Ended {
            result: Option<Result<R::Response>>,
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
        let mut this = self.project();
        loop {
            if let Some(sleep) = this.sleep.as_mut().as_pin_mut() {
                ready!(sleep.poll(cx));
                this.sleep.set(None);
            }
            let next = match this.state.as_mut().project() {
                StateProjection::Waiting { call } => {
                    if this.plan.hangs {
                        return Poll::Pending;
                    }
                    match (this.plan.error.take(), call.take()) {
                        (None, Some((mut inner, request))) => ChaosState::Called {
                            future: inner.call(request),
                        },
                        (Some(error), _) => ChaosState::Ended {
                            result: Some(Err(error.with_call(this.site.clone()))),
                        },
                        (None, None) => return Poll::Pending,
                    }
                }
                StateProjection::Called { future } => {
                    let result = ready!(future.poll(cx));
                    let mut result = result.map_err(|error| Error::from(error.into()));
                    // A response that was cut off is that of a model which has not streamed it.
                    let is_cut = this.cut.as_ref().is_some_and(|cut| !cut.is_done());
                    if result.is_ok() && (is_cut || this.plan.loses) {
                        result = Err(broken().with_call(this.site.clone()));
                    }
                    this.sleep.set(this.plan.hold_back.map(sleep));
                    ChaosState::Ended {
                        result: Some(result),
                    }
                }
                StateProjection::Ended { result } => match result.take() {
                    Some(result) => return Poll::Ready(result),
                    None => return Poll::Pending,
                },
            };
            this.state.set(next);
        }
    }
}

impl<S, R> fmt::Debug for ResponseFuture<S, R>
where
    S: Service<R>,
    R: Request,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
