use std::fmt;
use std::task::{Context, Poll};

use tower::Service;
use tower_layer::Layer;

use super::future::ResponseFuture;
use super::life;
use super::list::Callbacks;
use crate::call::Request;
use crate::error::{BoxError, Error, Result};

/// A service inside a band of callbacks; created by [`Callbacks`].
#[derive(Clone)]
pub struct CallbackService<S, R: Request> {
    inner: S,
    callbacks: Callbacks<R>,
}

impl<S, R: Request> CallbackService<S, R> {
    /// Wraps `inner` in `callbacks`.
    pub fn new(inner: S, callbacks: Callbacks<R>) -> Self {
        Self { inner, callbacks }
    }
}

impl<S, R: Request> Layer<S> for Callbacks<R> {
    type Service = CallbackService<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        CallbackService::new(inner, self.clone())
    }
}

impl<S, R> Service<R> for CallbackService<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // An empty list costs no box.
        if self.callbacks.is_empty() {
            return ResponseFuture::plain(self.inner.call(request));
        }
        // The service that was polled ready goes with the call; its unready clone stays.
        let unready = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, unready);
        let future = life::run(None, self.callbacks.clone(), request, ready, true);
        ResponseFuture::boxed(Box::pin(future))
    }
}

impl<S: fmt::Debug, R: Request> fmt::Debug for CallbackService<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackService")
            .field("inner", &self.inner)
            .field("callbacks", &self.callbacks)
            .finish()
    }
}
