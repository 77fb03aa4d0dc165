//! Calls that are made once they are admitted.

use std::future::{self, Future, Ready};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tower::Service;

use crate::ours::ours;
use tower_agent::error::{BoxError, Error, Result};

/// The right to make a call. One that is dropped without an end knows that the call was.
pub(crate) trait Permit<T> {
    /// Looks at the call after it was polled.
    fn look(&mut self) {}

    /// Notes how the call ended.
    fn end(self, result: Result<&T, &Error>);
}

impl<T> Permit<T> for () {
    fn end(self, _: Result<&T, &Error>) {}
}

pin_project! {
    /// Waits until a call is admitted, makes it, and tells its permit how it ended.
    ///
    /// `W` waits for the permit and makes the call, whose future is `F`.
    pub(crate) struct Admission<W, F, P> {
        #[pin]
        state: AdmissionState<W, F, P>,
    }
}

pin_project! {
    #[project = Projected]
    enum AdmissionState<W, F, P> {
        Waiting {
            #[pin]
            wait: W,
        },
        // The call is dropped before its permit, which then knows what was received.
        Called {
            #[pin]
            call: F,
            permit: Option<P>,
        },
    }
}

/// A call that is admitted or refused at once.
pub(crate) type Decided<F, P> = Admission<Ready<Result<(F, P)>>, F, P>;

/// A call of the service `S` that waits to be admitted.
pub(crate) type Queued<S, R, P> = Admission<WaitingCall<S, R, P>, <S as Service<R>>::Future, P>;

impl<F, P> Decided<F, P> {
    pub(crate) fn new(call: Result<(F, P)>) -> Self {
        let wait = future::ready(call);
        let state = AdmissionState::Waiting { wait };
        Self { state }
    }
}

impl<S: Service<R>, R, P> Queued<S, R, P> {
    /// Calls `service`, which was polled ready, with the request that `admission` returns.
    pub(crate) fn behind(
        admission: impl Future<Output = Result<(R, P)>> + Send + 'static,
        service: S,
    ) -> Self {
        let admission = Box::pin(admission);
        let wait = WaitingCall { admission, service };
        let state = AdmissionState::Waiting { wait };
        Self { state }
    }
}

/// Takes the service that was polled ready, and leaves a clone for the next call.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let next = service.clone();
    mem::replace(service, next)
}

pin_project! {
    /// Keeps the service that was polled ready until the call is admitted, and calls it.
    pub(crate) struct WaitingCall<S, R, P> {
        admission: BoxFuture<'static, Result<(R, P)>>,
        service: S,
    }
}

impl<S: Service<R>, R, P> Future for WaitingCall<S, R, P> {
    type Output = Result<(S::Future, P)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (request, permit) = ready!(this.admission.as_mut().poll(cx))?;
        Poll::Ready(Ok((this.service.call(request), permit)))
    }
}

impl<W, F, P, T, E> Future for Admission<W, F, P>
where
    W: Future<Output = Result<(F, P)>>,
    F: Future<Output = Result<T, E>>,
    P: Permit<T>,
    E: Into<BoxError>,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                Projected::Waiting { wait } => {
                    let (call, permit) = ready!(wait.poll(cx))?;
                    let permit = Some(permit);
                    state.set(AdmissionState::Called { call, permit });
                }
                Projected::Called { call, permit } => {
                    let polled = call.poll(cx);
                    if let Some(permit) = permit {
                        permit.look();
                    }
                    let result = ready!(polled).map_err(ours);
                    if let Some(permit) = permit.take() {
                        permit.end(result.as_ref());
                    }
                    return Poll::Ready(result);
                }
            }
        }
    }
}
