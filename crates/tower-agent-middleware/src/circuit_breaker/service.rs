use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use super::circuit::{CircuitSettings, Circuits, Permit};
use tower_agent::call::Request;
use tower_agent::error::{BoxError, CallSite, Error, Result};

/// A service that stops calling what keeps failing; created by
/// [`CircuitBreakerLayer`](super::CircuitBreakerLayer). Clones share their circuits.
#[derive(Clone, Debug)]
pub struct CircuitBreaker<S> {
    inner: S,
    circuits: Arc<Circuits>,
    settings: CircuitSettings,
}

impl<S> CircuitBreaker<S> {
    pub(super) fn new(inner: S, circuits: Arc<Circuits>, settings: CircuitSettings) -> Self {
        Self {
            inner,
            circuits,
            settings,
        }
    }
}

impl<S, R> Service<R> for CircuitBreaker<S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let key = request.name().map(Arc::from);
        let state = match self.circuits.admit(key, &self.settings) {
            Ok(permit) => BreakerState::Called {
                future: self.inner.call(request),
                permit: Some(permit),
            },
            Err(refusal) => BreakerState::Refused {
                error: Some(Error::from(refusal).with_call(CallSite::of(&request))),
            },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The future of a [`CircuitBreaker`].
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        state: BreakerState<F>,
    }
}

pin_project! {
    #[project = BreakerStateProjection]
    #[derive(Debug)]
    enum BreakerState<F> {
        Called {
            #[pin]
            future: F,
            permit: Option<Permit>,
        },
        Refused {
            error: Option<Error>,
        },
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            BreakerStateProjection::Called { future, permit } => {
                let result = ready!(future.poll(cx)).map_err(|error| Error::from(error.into()));
                if let Some(permit) = permit.take() {
                    match &result {
                        Ok(_) => permit.succeed(),
                        Err(error) => {
                            permit.fail(error);
                        }
                    }
                }
                Poll::Ready(result)
            }
            BreakerStateProjection::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                // Polled after it was ready.
                None => Poll::Pending,
            },
        }
    }
}
