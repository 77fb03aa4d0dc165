use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower_agent::call::Request;
use tower_agent::error::{BoxError, Error, Result};
use tower_layer::Layer;

use crate::lock::lock;
use crate::without_sink::without_sink;

/// Records the requests that pass and how each call ended, in memory. Clones share the record. See
/// [`Recording`](super::Recording) for a file that answers calls.
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::{BoxError, ModelRequest, ModelResponse};
/// use tower_agent_test::{Ended, RecordLayer};
/// use tower_layer::Layer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let record = RecordLayer::new();
/// let model = record.layer(service_fn(|_: ModelRequest| async {
///     Ok::<_, BoxError>(ModelResponse::from_text("hi"))
/// }));
///
/// model.clone().oneshot(ModelRequest::default()).await?;
/// drop(model.oneshot(ModelRequest::default())); // was never polled: not a call
/// assert_eq!(record.requests().len(), 1);
/// assert_eq!(record.responses()[0].message().text(), "hi");
/// assert!(matches!(record.calls()[..], [Ended::Done(_)]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RecordLayer<R: Request> {
    log: Log<R>,
}

/// A service that records calls; created by [`RecordLayer`].
#[derive(Clone)]
pub struct Record<S, R: Request> {
    inner: S,
    log: Log<R>,
}

type Log<R> = Arc<Mutex<Vec<(R, Ended<<R as Request>::Response>)>>>;

/// The end of a recorded call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ended<T> {
    /// The call is running.
    Running,
    /// The call returned this response.
    Done(T),
    /// The call failed with this error.
    Failed(Error),
    /// The call's future was dropped.
    Dropped,
}

impl<R: Request> RecordLayer<R> {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self {
            log: Log::<R>::default(),
        }
    }

    /// Returns the requests in call order, without their sinks.
    #[must_use]
    pub fn requests(&self) -> Vec<R> {
        lock(&self.log)
            .iter()
            .map(|(request, _)| request.clone())
            .collect()
    }

    /// Returns how the calls ended, in call order.
    #[must_use]
    pub fn calls(&self) -> Vec<Ended<R::Response>> {
        lock(&self.log)
            .iter()
            .map(|(_, ended)| ended.clone())
            .collect()
    }

    /// Returns the responses of successful calls, in call order.
    #[must_use]
    pub fn responses(&self) -> Vec<R::Response> {
        self.calls()
            .into_iter()
            .filter_map(|ended| match ended {
                Ended::Done(response) => Some(response),
                Ended::Running | Ended::Failed(_) | Ended::Dropped => None,
            })
            .collect()
    }
}

impl<R: Request> Default for RecordLayer<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Request> fmt::Debug for RecordLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordLayer")
            .field("calls", &lock(&self.log).len())
            .finish()
    }
}

impl<S, R: Request> Layer<S> for RecordLayer<R> {
    type Service = Record<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Record {
            inner,
            log: self.log.clone(),
        }
    }
}

impl<S: fmt::Debug, R: Request> fmt::Debug for Record<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, R> Service<R> for Record<S, R>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = RecordFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let mut log = lock(&self.log);
        // Before the call: a call that never ends is in the log, in the order of the calls.
        log.push((without_sink(&request), Ended::Running));
        let entry = CallEntry {
            log: self.log.clone(),
            index: log.len() - 1,
        };
        // The inner service may be recorded in the same log.
        drop(log);
        RecordFuture {
            future: self.inner.call(request),
            entry,
        }
    }
}

/// The entry of a running call in the log.
struct CallEntry<R: Request> {
    log: Log<R>,
    index: usize,
}

impl<R: Request> CallEntry<R> {
    /// Records the end of the call. Only the first counts: a call that has ended is dropped, too.
    fn end(&self, ended: Ended<R::Response>) {
        if let Some((_, slot @ Ended::Running)) = lock(&self.log).get_mut(self.index) {
            *slot = ended;
        }
    }
}

impl<R: Request> Drop for CallEntry<R> {
    fn drop(&mut self) {
        self.end(Ended::Dropped);
    }
}

pin_project! {
    /// The future of a [`Record`].
    pub struct RecordFuture<F, R: Request> {
        #[pin]
        future: F,
        entry: CallEntry<R>,
    }
}

impl<F, E, R> Future for RecordFuture<F, R>
where
    R: Request,
    F: Future<Output = Result<R::Response, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx)).map_err(|error| Error::from(error.into()));
        this.entry.end(match &result {
            Ok(response) => Ended::Done(response.clone()),
            Err(error) => Ended::Failed(error.clone()),
        });
        Poll::Ready(result)
    }
}

impl<F, R: Request> fmt::Debug for RecordFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordFuture").finish_non_exhaustive()
    }
}
