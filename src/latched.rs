//! Keeps a run that has ended from being called again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use crate::call::CallKind;
use crate::call::Request;
use crate::context::RunContext;
use crate::error::{BoxError, Error, Result};

/// The innermost service of a stack. It records an ending as soon as it is raised, before any outer
/// layer can repeat the call. A call of a run that has ended, or beyond its limit, is blocked.
///
/// It knows the call's name, so it need not keep the request.
#[derive(Clone, Debug)]
pub(crate) struct Latched<S> {
    service: S,
    name: Option<Arc<str>>,
}

impl<S> Latched<S> {
    pub(crate) fn new(service: S, name: Option<Arc<str>>) -> Self {
        Self { service, name }
    }
}

impl<S, R> Service<R> for Latched<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.service.poll_ready(cx).map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let context = request.context();
        let withheld = || (R::CALL == CallKind::Tool).then(|| context.withheld()).flatten();
        let refusal = context.refusal::<R>().or_else(|| context.beyond_limit(R::CALL));
        match refusal.or_else(withheld) {
            Some(ended) => ResponseFuture::Refused { ended },
            None => ResponseFuture::Made {
                call: R::CALL,
                name: self.name.clone(),
                context: request.context().clone(),
                latch: RunContext::latch::<R>,
                future: self.service.call(request),
            },
        }
    }
}

pin_project! {
    #[project = Projected]
    pub(crate) enum ResponseFuture<F> {
        Refused { ended: Error },
        Made { #[pin] future: F, call: CallKind, name: Option<Arc<str>>, context: RunContext, latch: fn(&RunContext, &Error) },
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
            Projected::Refused { ended } => Err(ended.clone()),
            Projected::Made { future, call, name, context, latch } => ready!(future.poll(cx))
                .map_err(|error| {
                    let error = Error::from(error.into());
                    let error = error.in_call(|| context.site(*call, name.as_deref()));
                    latch(context, &error);
                    error
                }),
        })
    }
}
