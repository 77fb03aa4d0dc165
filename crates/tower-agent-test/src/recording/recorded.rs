use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use serde::Serialize;
use serde_json::{Map, Value};
use tower::Service;
use tower_agent::call::{Extensions, Request, Witness};
use tower_agent::context::{EffectLog, Effects};
use tower_agent::error::{BoxError, Error, Result};
use tower_agent::message::Usage;
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::tool::ToolRequest;
use tower_layer::Layer;

use super::call::{RecordedCall, Site};
use super::error::RecordingError;
use super::recordable::Recordable;
use super::recording::{self, CallStart, OpenCall, Recording};
use super::tape::{self, Tape, Track};

/// A service that records its calls, or answers them from a recording; created by [`Recording`].
///
/// The inner service of a replay is neither called nor made ready.
#[derive(Clone, Debug)]
pub struct Recorded<S> {
    inner: S,
    recording: Recording,
}

impl<S> Layer<S> for Recording {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Recorded<S> {
        Recorded {
            inner,
            recording: self.clone(),
        }
    }
}

impl<S, R> Service<R> for Recorded<S>
where
    R: Recordable,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // A replay never calls the inner service, which may need a network to become ready.
        if self.recording.is_replay() {
            return Poll::Ready(Ok(()));
        }
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let begun = match begin(&self.recording, &mut request) {
            Ok(begun) => begun,
            Err(error) => {
                return ResponseFuture::answered(std::future::ready(Err(error.into())));
            }
        };
        match begun {
            (site, CallStart::Replay(outcome)) => {
                ResponseFuture::answered(replay(request, site, outcome))
            }
            (site, CallStart::Record(open)) => {
                // A redaction further inside can only be noticed while the call is made.
                let witness = extensions(&mut request).map(Witness::enter);
                let any: &mut dyn Any = &mut request;
                let tape = any.downcast_mut().and_then(Tape::of);
                let recording = self.recording.clone();
                let open = Some(open);
                let effects = collect(&mut request, &site);
                let running = Running {
                    recording,
                    site,
                    open,
                    tape,
                    witness,
                    effects,
                };
                let future = self.inner.call(request);
                ResponseFuture {
                    state: RecordedState::Record { future, running },
                }
            }
        }
    }
}

fn begin<R: Recordable>(
    recording: &Recording,
    request: &mut R,
) -> Result<(Site, CallStart), RecordingError> {
    let site = Site::of(request);
    // A replay writes nothing, so nothing can leak.
    let is_inside = !recording.is_replay()
        && extensions(request).is_some_and(|extensions| Witness::is_inside_redaction(extensions));
    if is_inside {
        return Err(recording.fail(RecordingError::Unredacted { call: site }));
    }
    let data = request.data();
    let call = RecordedCall {
        site: site.clone(),
        request: data.map_err(|error| recording.fail(RecordingError::data(&site, &error)))?,
    };
    Ok((site, recording.begin(call)?))
}

/// The extensions of a request that a redaction knows.
fn extensions<R: Any>(request: &mut R) -> Option<&mut Extensions> {
    let request: &mut dyn Any = request;
    if request.is::<ModelRequest>() {
        return request.downcast_mut().map(ModelRequest::extensions_mut);
    }
    request.downcast_mut().map(ToolRequest::extensions_mut)
}

/// Collects the tokens that a model call adds to the run, which a replay has to add itself. The
/// agent counts those of a model that it calls directly.
fn collect<R: Any>(request: &mut R, site: &Site) -> Option<EffectLog> {
    let request: &mut dyn Any = request;
    let request = request.downcast_mut::<ModelRequest>()?;
    let (inside, log) = EffectLog::collect(request.context(), site.to_string());
    *request = std::mem::take(request).with_context(inside);
    Some(log)
}

/// A call that is made. If it is dropped, the recording says so.
struct Running {
    recording: Recording,
    site: Site,
    open: Option<OpenCall>,
    tape: Option<Tape>,
    witness: Option<Witness>,
    effects: Option<EffectLog>,
}

impl Running {
    /// Records how the call ended; the error is that it cannot be recorded.
    fn record<T: Serialize>(&mut self, result: &Result<T>) -> Result<()> {
        // Taken, so that the drop of this call adds no second end.
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.end(open, result)
            .map_err(|fault| self.recording.fail(fault).into())
    }

    fn end<T: Serialize>(&self, open: OpenCall, result: &Result<T>) -> Result<(), RecordingError> {
        let witness = self.witness.as_ref();
        if witness.is_some_and(Witness::is_input_hidden_inside) {
            let call = self.site.clone();
            return Err(RecordingError::Unredacted { call });
        }
        let so_far = self.so_far();
        let so_far = so_far.map_err(|error| RecordingError::data(&self.site, &error))?;
        open.end_after(so_far, result)
    }

    /// Returns what there is however the call ends.
    fn so_far(&self) -> serde_json::Result<Map<String, Value>> {
        let mut outcome = Map::new();
        if let Some(tape) = &self.tape {
            outcome.insert("stream".into(), serde_json::to_value(tape.tracks())?);
        }
        let used = self.effects.as_ref().map(|log| log.effects().usage());
        if let Some(used) = used.filter(|used| *used != Usage::default()) {
            outcome.extend(recording::used(used)?);
        }
        Ok(outcome)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.end_dropped(self.so_far().unwrap_or_default());
        }
    }
}

/// Answers a call as it was answered.
async fn replay<R: Recordable>(request: R, site: Site, mut outcome: Value) -> Result<R::Response> {
    let unreadable = |error| Error::from(RecordingError::data(&site, &error));
    let was_streamed = outcome.get("stream").is_some();
    let tracks = match outcome.get_mut("stream").map(Value::take) {
        Some(tracks) => Some(serde_json::from_value::<Vec<Track>>(tracks).map_err(unreadable)?),
        None => None,
    };
    let error = outcome.get_mut("error").map(Value::take);
    let response = outcome.get_mut("response").map(Value::take);
    let sink = request.delta_sender();
    let (number, open) = match (sink, tracks) {
        (Some(sink), Some(tracks)) => tape::play(sink, tracks).await?,
        _ => (None, None),
    };
    if let Some(used) = outcome.get_mut("usage").map(Value::take) {
        let used: Usage = serde_json::from_value(used).map_err(unreadable)?;
        Effects::from(used).apply(request.context(), &site.to_string());
    }
    if let Some(error) = error {
        // Dropped with the error, as the attempt of the recorded call was: the consumer sees it
        // break off.
        let _open = open;
        return Err(serde_json::from_value(error).map_err(unreadable)?);
    }
    let Some(response) = response else {
        // The recorded call was dropped here, and so will this one be.
        let _open = open;
        return std::future::pending().await;
    };
    let mut response: R::Response = serde_json::from_value(response).map_err(unreadable)?;
    let any: &mut dyn Any = &mut response;
    if let (Some(sink), Some(response)) = (sink, any.downcast_mut::<ModelResponse>()) {
        *response = if was_streamed {
            response.clone().with_attempt(number)
        } else {
            response.clone().streamed_to(Some(sink)).await?
        }
    }
    Ok(response)
}

pin_project! {
    /// The future of a [`Recorded`].
    pub struct ResponseFuture<F, T> {
        #[pin]
        state: RecordedState<F, T>,
    }
}

pin_project! {
    #[project = Projected]
    enum RecordedState<F, T> {
        Record {
            #[pin]
            future: F,
            running: Running,
        },
        Answered {
            future: BoxFuture<'static, Result<T>>,
        },
    }
}

impl<F, T> ResponseFuture<F, T> {
    fn answered(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self {
            state: RecordedState::Answered {
                future: Box::pin(future),
            },
        }
    }
}

impl<F, T, E> Future for ResponseFuture<F, T>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
    T: Serialize,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::Record { future, running } => {
                let result = ready!(future.poll(cx)).map_err(|error| Error::from(error.into()));
                Poll::Ready(running.record(&result).and(result))
            }
            Projected::Answered { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, T> fmt::Debug for ResponseFuture<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
