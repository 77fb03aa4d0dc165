//! Callbacks that a run carries, rather than an agent.

use std::task::{Context, Poll};

use tower::Service;

use super::{CallbackService, Callbacks, future::ResponseFuture};
use crate::context::Place;
use crate::error::{BoxError, Error, Result};
use crate::request::Request;

/// A service inside the callbacks that its run carries at one place, if it carries any.
#[derive(Clone, Debug)]
pub(crate) struct Carried<S> {
    inner: S,
    place: Place,
}

impl<S> Carried<S> {
    pub(crate) fn new(inner: S, place: Place) -> Self {
        Self { inner, place }
    }
}

impl<S, R> Service<R> for Carried<S>
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
        self.inner.poll_ready(cx).map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        match request.context().carried::<Callbacks<R>>(self.place) {
            None => ResponseFuture::passed(self.inner.call(request)),
            Some(callbacks) => {
                let callbacks = callbacks.clone();
                let unready = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, unready);
                CallbackService::new(ready, callbacks).call(request)
            }
        }
    }
}
