//! Functions around a call, which receive the request and the inner service.

use std::fmt;
use std::future::{Future, ready};
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::Either;
use tower::Service;
use tower_layer::Layer;

use crate::call::{BoxCallFuture, BoxCallService, CallService, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::panic::{CatchPanic, catch};

/// The inner service of a wrap. It may be called repeatedly, and its clones in parallel.
///
/// Each call drives the inner service's readiness itself.
#[derive(Clone, Debug)]
pub struct Next<R: Request> {
    inner: BoxCallService<R>,
}

impl<R: Request> Next<R> {
    /// Calls the inner service.
    ///
    /// # Errors
    ///
    /// Returns the error of the call.
    pub fn run(&mut self, request: R) -> impl Future<Output = Result<R::Response>> + Send + use<R> {
        self.inner.call(request)
    }
}

/// A layer made from a function around a call; created by [`wrap_model`](super::wrap_model) and the
/// like.
#[derive(Clone)]
#[must_use = "a wrap does nothing until it is layered"]
pub struct Wrap<R: Request> {
    function: Arc<Function<R>>,
    name: Arc<str>,
}

/// Runs the function of a wrap, which is passed for its name.
type Function<R> = dyn Fn(Arc<Wrap<R>>, R, Next<R>) -> BoxCallFuture<R> + Send + Sync;

impl<R: Request> Wrap<R> {
    #[track_caller]
    pub(super) fn new<F, O>(function: F, hook: &'static str) -> Self
    where
        F: Fn(R, Next<R>) -> O + Send + Sync + 'static,
        O: Future<Output = Result<R::Response>> + Send + 'static,
    {
        let name = format!("{hook} at {}", Location::caller()).into();
        let function = move |wrap: Arc<Self>, request: R, next| -> BoxCallFuture<R> {
            let context = request.context().clone();
            // The function takes the request, and an error of the call needs its name.
            let name: Option<Arc<str>> = request.name().map(Into::into);
            // The function is foreign code: it may start calls of its own, which an ended run must
            // not make.
            if let Err(refusal) = context.endings().admit::<R>() {
                return Box::pin(ready(Err(refusal)));
            }
            // It may panic before its future exists, and while that runs.
            let running = match catch(|| function(request, next)) {
                Ok(running) => Either::Left(CatchPanic::new(running)),
                Err(panic) => Either::Right(ready(Err(panic))),
            };
            // Not an async block, which would have room for the function's future twice.
            Box::pin(running.map(move |result| {
                let result = result.unwrap_or_else(|panic| {
                    let message = format!("panicked: {panic}");
                    Err(Error::new(ErrorKind::Callback, message))
                });
                // Named before it is settled: an ending is recorded with the name of the wrap that
                // raised it.
                let by = || wrap.name.to_string().into();
                let result = result.map_err(|error| error.by(by, "wrap"));
                context.endings().settle::<R, _>(name.as_deref(), result)
            }))
        };
        Self {
            function: Arc::new(function),
            name,
        }
    }

    /// Sets the name. Defaults to the place in the source.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the name used in errors and by [`explain`](crate::Agent::explain).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<R: Request> fmt::Debug for Wrap<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wrap").field(&self.name).finish()
    }
}

impl<S: CallService<R>, R: Request> Layer<S> for Wrap<R> {
    type Service = WrapService<R>;

    fn layer(&self, inner: S) -> Self::Service {
        WrapService {
            inner: BoxCallService::new(inner),
            wrap: Arc::new(self.clone()),
        }
    }
}

/// A service inside a [`Wrap`].
#[derive(Clone, Debug)]
pub struct WrapService<R: Request> {
    inner: BoxCallService<R>,
    // Shared: each call has one.
    wrap: Arc<Wrap<R>>,
}

impl<R: Request> Service<R> for WrapService<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // It keeps its readiness for the first `run`; each further one drives its own.
        let inner = self.inner.take();
        (self.wrap.function)(self.wrap.clone(), request, Next { inner })
    }
}
