//! A tool that panics fails; it does not take the run with it. Its other errors are named its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use super::{ToolRequest, ToolResponse};
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::panic::{CatchPanic, catch};

/// Turns a panic of the tool into its error.
#[derive(Clone, Debug)]
pub(super) struct CatchToolPanic<S>(pub(super) S);

impl<S> Service<ToolRequest> for CatchToolPanic<S>
where
    S: Service<ToolRequest, Response = ToolResponse, Error: Into<BoxError>>,
{
    type Response = ToolResponse;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_ready(cx).map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        match catch(|| self.0.call(request)) {
            Ok(future) => ResponseFuture::Running { future: CatchPanic::new(future) },
            Err(panic) => ResponseFuture::Panicked { panic },
        }
    }
}

pin_project! {
    #[project = Projected]
    pub(super) enum ResponseFuture<F> {
        Running { #[pin] future: CatchPanic<F> },
        Panicked { panic: String },
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<ToolResponse, E>>,
    E: Into<BoxError>,
{
    type Output = Result<ToolResponse>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let panic = match self.project() {
            Projected::Running { future } => match ready!(future.poll(cx)) {
                Ok(result) => {
                    let own = |error: E| Error::from(error.into()).or_kind(ErrorKind::Tool);
                    return Poll::Ready(result.map_err(own));
                }
                Err(panic) => panic,
            },
            Projected::Panicked { panic } => std::mem::take(panic),
        };
        Poll::Ready(Err(Error::new(ErrorKind::Tool, format!("the tool panicked: {panic}"))))
    }
}
