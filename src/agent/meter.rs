//! Counts tokens directly around the model, once for each attempt.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use crate::call::Request;
use crate::context::RunContext;
use crate::error::{BoxError, Error, Result};
use crate::model::{ModelRequest, ModelResponse};

/// A model whose usage is added to the run.
#[derive(Clone, Debug)]
pub(super) struct Metered<S>(pub(super) S);

impl<S> Service<ModelRequest> for Metered<S>
where
    S: Service<ModelRequest, Response = ModelResponse, Error: Into<BoxError>>,
{
    type Response = ModelResponse;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_ready(cx).map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        let context = request.context().clone();
        ResponseFuture { future: self.0.call(request), context }
    }
}

pin_project! {
    pub(super) struct ResponseFuture<F> {
        #[pin]
        future: F,
        context: RunContext,
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<ModelResponse, E>>,
    E: Into<BoxError>,
{
    type Output = Result<ModelResponse>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx)).map_err(|error| Error::from(error.into()))?;
        this.context.add_usage(response.usage());
        Poll::Ready(Ok(response))
    }
}
