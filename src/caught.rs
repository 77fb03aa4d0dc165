//! Converts panics of a service to errors.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use crate::call::CallKind;
use crate::call::Request;
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::panic::{CatchPanic, catch};

/// Converts a panic of a model or tool to an error of the call, so that callbacks, retries and
/// fallbacks see it. Panics in `poll_ready` are included.
#[derive(Debug)]
pub(crate) struct Caught<S> {
    service: S,
    panicked: Option<String>,
}

impl<S> Caught<S> {
    pub(crate) fn new(service: S) -> Self {
        Self { service, panicked: None }
    }
}

impl<S: Clone> Clone for Caught<S> {
    fn clone(&self) -> Self {
        Self::new(self.service.clone())
    }
}

impl<S, R> Service<R> for Caught<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match catch(|| self.service.poll_ready(cx)) {
            Ok(poll) => poll.map_err(|error| own::<S::Error>(R::CALL, error)),
            Err(panic) => {
                self.panicked = Some(panic);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn call(&mut self, request: R) -> Self::Future {
        let called = match self.panicked.take() {
            Some(panic) => Err(panic),
            None => catch(|| self.service.call(request)),
        };
        match called {
            Ok(future) => {
                ResponseFuture::Running { future: CatchPanic::new(future), call: R::CALL }
            }
            Err(panic) => ResponseFuture::Panicked { error: panicked(R::CALL, &panic) },
        }
    }
}

pin_project! {
    #[project = Projected]
    pub(crate) enum ResponseFuture<F> {
        Running { #[pin] future: CatchPanic<F>, call: CallKind },
        Panicked { error: Error },
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            Projected::Running { future, call } => match ready!(future.poll(cx)) {
                Ok(result) => result.map_err(|error| own(*call, error)),
                Err(panic) => Err(panicked(*call, &panic)),
            },
            Projected::Panicked { error } => Err(error.clone()),
        })
    }
}

/// Converts an error of the service itself.
fn own<E: Into<BoxError>>(call: CallKind, error: E) -> Error {
    let error = Error::from(error.into());
    match call {
        CallKind::Tool => error.or_kind(ErrorKind::Tool),
        _ => error,
    }
}

fn panicked(call: CallKind, panic: &str) -> Error {
    let kind = match call {
        CallKind::Tool => ErrorKind::Tool,
        CallKind::Model => ErrorKind::Provider,
        _ => ErrorKind::Other,
    };
    Error::new(kind, format!("the {call} panicked: {panic}"))
}
