use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower_agent::error::{Error, Result};
use tower_layer::Layer;

use crate::open_call::OpenCall;
use crate::recorded::Recorded;
use crate::telemetry::Telemetry;

/// Records every call that passes: a span and metrics.
#[derive(Clone)]
pub(crate) struct OpenTelemetryLayer {
    telemetry: Arc<Telemetry>,
}

impl OpenTelemetryLayer {
    pub(crate) fn new(telemetry: Arc<Telemetry>) -> Self {
        Self { telemetry }
    }
}

impl<S> Layer<S> for OpenTelemetryLayer {
    type Service = RecordCalls<S>;

    fn layer(&self, inner: S) -> RecordCalls<S> {
        RecordCalls {
            inner,
            telemetry: self.telemetry.clone(),
        }
    }
}

/// The service of [`OpenTelemetryLayer`].
#[derive(Clone)]
pub(crate) struct RecordCalls<S> {
    inner: S,
    telemetry: Arc<Telemetry>,
}

impl<S, R> Service<R> for RecordCalls<S>
where
    R: Recorded,
    S: Service<R, Response = R::Response, Error = Error>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let mut call = OpenCall::begin(&mut request, &self.telemetry);
        // Services may do their work in `call` already, and its spans are children of this one.
        let inner = match &mut call {
            Some(call) => call.inside(|| self.inner.call(request)),
            None => self.inner.call(request),
        };
        ResponseFuture {
            inner: Some(inner),
            call,
        }
    }
}

pin_project! {
    /// The future of a recorded call. It ends the call with the result, or as cancelled on drop.
    pub(crate) struct ResponseFuture<F, R: Recorded> {
        // `None` once it has ended.
        #[pin]
        inner: Option<F>,
        // `None` for a call that nobody hears of. Boxed, so that such a call has no room for it.
        call: Option<Box<OpenCall<R>>>,
    }

    impl<F, R: Recorded> PinnedDrop for ResponseFuture<F, R> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Destructors of a cancelled call may emit events, and these belong to its span:
            // `inner` has to go before `call`, whose drop ends the span.
            if let Some(call) = this.call
                && this.inner.is_some()
            {
                call.inside(|| this.inner.set(None));
            }
        }
    }
}

impl<F, R> Future for ResponseFuture<F, R>
where
    R: Recorded,
    F: Future<Output = Result<R::Response>>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let Some(call) = this.call else {
            return inner.poll(cx);
        };
        let mut polled = call.inside(|| inner.as_mut().poll(cx));
        // It waits to be polled in its span, which has started in this poll.
        if polled.is_pending() && call.has_just_begun() {
            polled = call.inside(|| inner.poll(cx));
        }
        let result = ready!(polled);
        // For the same reason as in `drop`: destructors run while the span is open.
        call.inside(|| this.inner.set(None));
        call.end(&result);
        Poll::Ready(result)
    }
}
