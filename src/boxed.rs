//! The erased handle of a call's service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::BoxFuture;
use tower::Service;

use crate::error::{BoxError, Error, Result};
use crate::request::Request;

/// A service for `R` with its type erased, its error made [`Error`], and its readiness kept.
///
/// It differs from [`BoxCloneSyncService`](tower::util::BoxCloneSyncService) in that a clone costs
/// a reference count: the service itself is cloned when the handle is first asked for readiness,
/// so handles that only pass a stack along are free.
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::{BoxError, BoxModel, Message, ModelRequest, ModelResponse};
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
pub struct Boxed<R: Request> {
    template: Arc<dyn Template<R>>,
    live: Option<Box<dyn Live<R>>>,
}

impl<R: Request> Boxed<R> {
    /// Erases `service`.
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

    /// Erases a service that has been polled ready, and keeps it so.
    pub(crate) fn ready<S>(service: S) -> Self
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let template = Arc::new(Of(service.clone()));
        Self { template, live: Some(Box::new(Of(service))) }
    }

    fn live(&mut self) -> &mut Box<dyn Live<R>> {
        self.live.get_or_insert_with(|| self.template.instantiate())
    }
}

impl<R: Request> Service<R> for Boxed<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxFuture<'static, Result<R::Response>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.live().poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.live().call(request)
    }
}

impl<R: Request> Clone for Boxed<R> {
    /// The clone is not ready, whatever this handle is.
    fn clone(&self) -> Self {
        Self { template: self.template.clone(), live: None }
    }
}

impl<R: Request> fmt::Debug for Boxed<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boxed").field("call", &R::CALL).finish_non_exhaustive()
    }
}

trait Template<R: Request>: Send + Sync {
    fn instantiate(&self) -> Box<dyn Live<R>>;
}

trait Live<R: Request>: Send + Sync {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>>;
    fn call(&mut self, request: R) -> BoxFuture<'static, Result<R::Response>>;
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
    fn instantiate(&self) -> Box<dyn Live<R>> {
        Box::new(Self(self.0.clone()))
    }
}

impl<R, S> Live<R> for Of<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send + 'static>
        + Send
        + Sync,
{
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_ready(cx).map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> BoxFuture<'static, Result<R::Response>> {
        Box::pin(self.0.call(request).map_err(|error| Error::from(error.into())))
    }
}
