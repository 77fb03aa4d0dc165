//! Futures of the layers in this module.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::Either;
use pin_project_lite::pin_project;

pub use super::wrap::WrapFuture;
use crate::call::{BoxCallFuture, Request};
use crate::error::{BoxError, Error, Result};
pub use crate::maybe_future::MaybeFuture;

pin_project! {
    /// The future of a [`CallbackService`](super::CallbackService).
    pub struct ResponseFuture<F, R: Request> {
        #[pin]
        call: Either<F, BoxCallFuture<R>>,
    }
}

impl<F, R: Request> ResponseFuture<F, R> {
    /// A call that nothing is around.
    pub(super) fn plain(future: F) -> Self {
        Self {
            call: Either::Left(future),
        }
    }

    pub(super) fn boxed(future: BoxCallFuture<R>) -> Self {
        Self {
            call: Either::Right(future),
        }
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
        match self.project().call.as_pin_mut() {
            Either::Left(future) => future.poll(cx).map_err(|error| Error::from(error.into())),
            Either::Right(future) => future.poll(cx),
        }
    }
}

impl<F, R: Request> fmt::Debug for ResponseFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
