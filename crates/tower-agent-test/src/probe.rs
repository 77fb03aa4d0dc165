use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower_layer::Layer;

use crate::lock::lock;

/// Counts how a service is driven: calls made without readiness, concurrent calls, dropped calls.
/// Clones share the counts.
///
/// It accepts any request, and changes neither requests nor responses nor errors.
///
/// ```
/// use tower::{Service, ServiceExt, service_fn};
/// use tower_agent_test::ProbeLayer;
/// use tower_layer::Layer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower::BoxError> {
/// let probe = ProbeLayer::new().pending_polls(2);
/// let mut service = probe.layer(service_fn(async |n: u32| Ok::<_, tower::BoxError>(n + 1)));
///
/// assert_eq!(service.ready().await?.call(1).await?, 2);
/// assert_eq!(probe.violations(), 0);
///
/// assert_eq!(service.call(1).await?, 2); // without `ready`
/// assert_eq!((probe.calls(), probe.violations()), (2, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProbeLayer {
    shared: Arc<Mutex<ProbeCounts>>,
    pending_polls: usize,
}

/// A service that counts how it is driven; created by [`ProbeLayer`]. Its clones start unready.
#[derive(Debug)]
pub struct Probe<S> {
    inner: S,
    layer: ProbeLayer,
    polls_left: usize,
    ready: bool,
}

/// The counts that all services of one probe share.
#[derive(Debug, Default)]
struct ProbeCounts {
    held: bool,
    waiting: Vec<Waker>,
    calls: usize,
    violations: usize,
    in_flight: usize,
    max_in_flight: usize,
    cancelled: usize,
}

impl ProbeLayer {
    /// Creates a probe with all counts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes its services return `Pending` from this many polls of `poll_ready` before each
    /// readiness, waking the task each time.
    #[must_use]
    pub fn pending_polls(mut self, polls: usize) -> Self {
        self.pending_polls = polls;
        self
    }

    /// Keeps services from becoming ready until [`release`](Self::release). Services that are ready
    /// stay ready.
    pub fn hold(&self) {
        lock(&self.shared).held = true;
    }

    /// Lets services become ready again.
    pub fn release(&self) {
        let mut state = lock(&self.shared);
        state.held = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Without the lock: a waker may poll a service at once, which takes it.
        for waker in waiting {
            waker.wake();
        }
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        lock(&self.shared).calls
    }

    /// Returns the number of calls made without a preceding `poll_ready` that returned ready.
    #[must_use]
    pub fn violations(&self) -> usize {
        lock(&self.shared).violations
    }

    /// Returns the number of running calls.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        lock(&self.shared).in_flight
    }

    /// Returns the maximum number of calls that ran at the same time.
    #[must_use]
    pub fn max_in_flight(&self) -> usize {
        lock(&self.shared).max_in_flight
    }

    /// Returns the number of calls dropped before they completed.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        lock(&self.shared).cancelled
    }
}

impl<S> Layer<S> for ProbeLayer {
    type Service = Probe<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Probe {
            inner,
            layer: self.clone(),
            polls_left: self.pending_polls,
            ready: false,
        }
    }
}

impl<S: Clone> Clone for Probe<S> {
    fn clone(&self) -> Self {
        // Readiness belongs to the service that was polled: a call of a fresh clone is a violation.
        self.layer.layer(self.inner.clone())
    }
}

impl<S, Request> Service<Request> for Probe<S>
where
    S: Service<Request>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ProbeFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if !self.ready {
            let mut state = lock(&self.layer.shared);
            if state.held {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            if self.polls_left > 0 {
                self.polls_left -= 1;
                // Woken at once: the delay is one of polls and not of time.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        ready!(self.inner.poll_ready(cx))?;
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let mut state = lock(&self.layer.shared);
        state.calls += 1;
        state.violations += usize::from(!self.ready);
        state.in_flight += 1;
        state.max_in_flight = state.max_in_flight.max(state.in_flight);
        drop(state);
        self.ready = false;
        self.polls_left = self.layer.pending_polls;
        // Before the call: a service that panics in it has ended it.
        let running = RunningCall {
            shared: self.layer.shared.clone(),
            has_returned: false,
        };
        ProbeFuture {
            future: self.inner.call(request),
            running: Some(running),
        }
    }
}

/// A call that runs; counts its end when it is dropped.
#[derive(Debug)]
struct RunningCall {
    shared: Arc<Mutex<ProbeCounts>>,
    has_returned: bool,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.in_flight -= 1;
        state.cancelled += usize::from(!self.has_returned);
    }
}

pin_project! {
    /// The future of a [`Probe`].
    #[derive(Debug)]
    pub struct ProbeFuture<F> {
        #[pin]
        future: F,
        running: Option<RunningCall>,
    }
}

impl<F: Future> Future for ProbeFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.future.poll(cx));
        // Its end is counted here, and not only when the future is dropped.
        if let Some(mut running) = this.running.take() {
            running.has_returned = true;
        }
        Poll::Ready(output)
    }
}
