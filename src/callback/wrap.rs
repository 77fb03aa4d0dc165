//! Functions around a call, which receive the request and the inner service.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tower::Service;
use tower_layer::Layer;

use crate::call::{BoxCallService, CallService, Request};
use crate::context::RunContext;
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

type Function<R> = dyn Fn(R, Next<R>) -> Running<R> + Send + Sync;

type Running<R> = BoxFuture<'static, Result<<R as Request>::Response>>;

impl<R: Request> Wrap<R> {
    #[track_caller]
    pub(super) fn new<F, O>(function: F, hook: &'static str) -> Self
    where
        F: Fn(R, Next<R>) -> O + Send + Sync + 'static,
        O: Future<Output = Result<R::Response>> + Send + 'static,
    {
        let name = format!("{hook} at {}", Location::caller()).into();
        let function = move |request, next| -> Running<R> { Box::pin(function(request, next)) };
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

    /// Returns an error of the function as that of the call. `name` is that of what is called.
    #[cold]
    fn failure(&self, error: Error, context: &RunContext, name: Option<&str>) -> Error {
        // Named before it is settled: an ending is recorded with the name of the wrap that raised
        // it.
        let error = error.by(|| self.name.to_string().into(), "wrap");
        context.endings().settle_error::<R>(name, error)
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
    type Future = WrapFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let wrap = self.wrap.clone();
        let context = request.context().clone();
        // The function takes the request, and an error of the call needs its name.
        let name: Option<Arc<str>> = request.name().map(Into::into);
        let next = Next {
            // It keeps its readiness for the first `run`; each further one drives its own.
            inner: self.inner.take(),
        };
        // The function is foreign code: it may start calls of its own, which an ended run must not
        // make.
        let running = context.endings().admit::<R>().and_then(|()| {
            // It may panic before its future exists, and while that runs.
            let running = catch(|| (wrap.function)(request, next));
            let name = name.as_deref();
            let running =
                running.map_err(|panic| wrap.failure(panicked(&panic), &context, name))?;
            Ok(CatchPanic::new(running))
        });
        WrapFuture {
            running: Some(running),
            context,
            wrap,
            name,
        }
    }
}

/// The future of a [`WrapService`].
pub struct WrapFuture<R: Request> {
    /// The future of the function, or why there is none. `None` once the call has ended.
    running: Option<Result<CatchPanic<Running<R>>>>,
    context: RunContext,
    wrap: Arc<Wrap<R>>,
    /// The name of what is called.
    name: Option<Arc<str>>,
}

impl<R: Request> Future for WrapFuture<R> {
    type Output = Result<R::Response>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = match &mut this.running {
            None => return Poll::Pending,
            Some(Err(refusal)) => return Poll::Ready(Err(refusal.clone())),
            Some(Ok(running)) => match ready!(Pin::new(running).poll(cx)) {
                Ok(result) => result,
                Err(panic) => Err(panicked(&panic)),
            },
        };
        // The future is dropped before the result leaves, as an `async fn` would drop it.
        this.running = None;
        if let Err(error) = result {
            let name = this.name.as_deref();
            return Poll::Ready(Err(this.wrap.failure(error, &this.context, name)));
        }
        this.context.endings().settle_success::<R>()?;
        Poll::Ready(result)
    }
}

fn panicked(panic: &str) -> Error {
    Error::new(ErrorKind::Callback, format!("panicked: {panic}"))
}

impl<R: Request> fmt::Debug for WrapFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapFuture").finish_non_exhaustive()
    }
}
