//! Callbacks carried by a run.

use std::task::{Context, Poll};

use tower::Service;

use super::{CallbackService, Callbacks, LayerInner, future::ResponseFuture};
use crate::call::Request;
use crate::context::Place;
use crate::error::{BoxError, Error, ErrorKind, Result};

/// An agent's stack for one call, with the callbacks that the run carries for the whole tree.
#[derive(Debug)]
pub(crate) struct InTree<R: Request>(LayerInner<R>);

impl<R: Request> InTree<R> {
    pub(crate) fn new(stack: LayerInner<R>) -> Self {
        Self(stack)
    }
}

impl<R: Request> Clone for InTree<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Request> Service<R> for InTree<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<<LayerInner<R> as Service<R>>::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Some(tree) = request.context().carried::<Callbacks<R>>(Place::Outermost) else {
            return ResponseFuture::passed(self.0.call(request));
        };
        let tree = tree.clone();
        let unready = self.0.clone();
        let ready = std::mem::replace(&mut self.0, unready);
        let own = ready.callbacks().clone().in_run(request.context());
        if tree.shares_band_of(own.semantics()) {
            let mut first = ready.with_callbacks(tree.and(own));
            ResponseFuture::passed(first.call(request))
        } else {
            CallbackService::new(ready, tree).call(request)
        }
    }
}

/// A service inside the callbacks of its run, if there are any, and those that the tree carries
/// directly around the model and the tools.
#[derive(Clone, Debug)]
pub(crate) struct Carried<S> {
    inner: S,
}

impl<S> Carried<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner }
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
        if request.context().path().is_empty() {
            let message = format!(
                "a layer has replaced the agent's {} request by a new one, which does not belong to \
                 the run; change the request that the layer received, or a clone of it",
                R::CALL
            );
            return ResponseFuture::failed(Error::new(ErrorKind::InvalidRequest, message));
        }
        let context = request.context();
        let run = context.carried::<Callbacks<R>>(Place::Innermost).cloned();
        let inmost = context.carried::<Callbacks<R>>(Place::Inmost).cloned();
        if run.is_none() && inmost.is_none() {
            return ResponseFuture::passed(self.inner.call(request));
        }
        let unready = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, unready);
        let inside = CallbackService::new(ready, inmost.unwrap_or_default());
        match run {
            None => {
                let mut inside = inside;
                inside.call(request)
            }
            Some(run) => ResponseFuture::boxed(CallbackService::new(inside, run).call(request)),
        }
    }
}
