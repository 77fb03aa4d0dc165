//! The edge of a run: a service that ends the run cannot be called in it again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use crate::error::{BoxError, CallSite, Error, Result};
use crate::request::Request;

/// A service at the bottom of a stack. An ending that it raises is latched there and then, before
/// any layer around it could make the call again, and a call in a run that has ended is not made.
#[derive(Clone, Debug)]
pub(crate) struct Latched<S>(pub(crate) S);

impl<S, R> Service<R> for Latched<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_ready(cx).map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        match request.context().refusal(R::CALL) {
            Some(ended) => ResponseFuture::Refused { ended },
            None => ResponseFuture::Made { future: self.0.call(request.clone()), request },
        }
    }
}

pin_project! {
    #[project = Projected]
    pub(crate) enum ResponseFuture<F, R> {
        Refused { ended: Error },
        Made { #[pin] future: F, request: R },
    }
}

impl<F, E, R> Future for ResponseFuture<F, R>
where
    R: Request,
    F: Future<Output = Result<R::Response, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            Projected::Refused { ended } => Err(ended.clone()),
            Projected::Made { future, request } => ready!(future.poll(cx)).map_err(|error| {
                let error = Error::from(error.into()).in_call(|| CallSite::of(request));
                request.context().latch(R::CALL, &error);
                error
            }),
        })
    }
}
