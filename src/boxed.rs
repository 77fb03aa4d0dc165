//! The type-erased service of a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use sync_wrapper::SyncWrapper;
use tower::Service;

use crate::call::Request;
use crate::error::{BoxError, Error, Result};

/// A type-erased service for `R` that keeps the inner service's readiness and converts its errors
/// to [`Error`].
///
/// Compared with [`BoxCloneSyncService`](tower::util::BoxCloneSyncService), cloning costs a
/// reference count, and a call costs one box, which first holds the service while it becomes ready
/// and then its future. Each call therefore uses its own clone of the service.
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::{BoxError, Message, ModelRequest, ModelResponse};
/// use tower_agent::model::BoxModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let model = BoxModel::new(service_fn(|_: ModelRequest| async {
///     Ok::<_, BoxError>(ModelResponse::new(Message::assistant("hello")))
/// }));
/// let response = model.clone().oneshot(ModelRequest::default()).await?;
/// assert_eq!(response.message().text(), "hello");
/// # Ok(())
/// # }
/// ```
pub struct BoxCallService<R: Request> {
    template: Arc<dyn Template<R>>,
    live: Option<Pin<Box<dyn Live<R>>>>,
}

impl<R: Request> BoxCallService<R> {
    /// Erases the type of `service`.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self { template: Arc::new(Of(service)), live: None }
    }

    /// Erases the type of a service that has been polled ready, and keeps it ready.
    pub(crate) fn ready<S>(service: S) -> Self
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let template = Arc::new(Of(service.clone()));
        Self { template, live: Some(Box::pin(live(service))) }
    }

    fn live(&mut self) -> Pin<&mut dyn Live<R>> {
        self.live.get_or_insert_with(|| self.template.instantiate()).as_mut()
    }
}

impl<R: Request> Service<R> for BoxCallService<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.live().poll_ready(cx)
    }

    fn call(&mut self, request: R) -> BoxCallFuture<R> {
        let mut live = self.live.take().unwrap_or_else(|| self.template.instantiate());
        live.as_mut().start(request);
        BoxCallFuture(live)
    }
}

impl<R: Request> Clone for BoxCallService<R> {
    /// The clone is not ready, even if the original is.
    fn clone(&self) -> Self {
        Self { template: self.template.clone(), live: None }
    }
}

impl<R: Request> fmt::Debug for BoxCallService<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxCallService").field("call", &R::CALL).finish_non_exhaustive()
    }
}

/// The future of a [`BoxCallService`].
#[must_use = "a call does nothing until it is awaited"]
pub struct BoxCallFuture<R: Request>(Pin<Box<dyn Live<R>>>);

impl<R: Request> Future for BoxCallFuture<R> {
    type Output = Result<R::Response>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<R: Request> fmt::Debug for BoxCallFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxCallFuture").field("call", &R::CALL).finish_non_exhaustive()
    }
}

trait Template<R: Request>: Send + Sync {
    fn instantiate(&self) -> Pin<Box<dyn Live<R>>>;
}

struct Of<S>(S);

impl<R, S> Template<R> for Of<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    fn instantiate(&self) -> Pin<Box<dyn Live<R>>> {
        Box::pin(live(self.0.clone()))
    }
}

/// One call: a service becoming ready, then its future. A [`BoxCallService`] holds the first, a
/// [`BoxCallFuture`] the second.
trait Live<R: Request>: Send + Sync {
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>>;
    fn start(self: Pin<&mut Self>, request: R);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<R::Response>>;
}

pin_project! {
    #[project = Projected]
    enum State<S, F> {
        Service { service: S },
        Called { #[pin] future: F },
    }
}

/// Futures need not be `Sync`: none is accessed through a shared reference.
fn live<R: Request, S: Service<R>>(service: S) -> SyncWrapper<State<S, S::Future>> {
    SyncWrapper::new(State::Service { service })
}

impl<R, S> Live<R> for SyncWrapper<State<S, S::Future>>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_pin_mut().project() {
            Projected::Service { service } => service.poll_ready(cx).map_err(ours),
            Projected::Called { .. } => Poll::Pending,
        }
    }

    fn start(self: Pin<&mut Self>, request: R) {
        let mut state = self.get_pin_mut();
        if let Projected::Service { service } = state.as_mut().project() {
            let future = service.call(request);
            state.set(State::Called { future });
        }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<R::Response>> {
        match self.get_pin_mut().project() {
            Projected::Service { .. } => Poll::Pending,
            Projected::Called { future } => future.poll(cx).map_err(ours),
        }
    }
}

fn ours(error: impl Into<BoxError>) -> Error {
    Error::from(error.into())
}
