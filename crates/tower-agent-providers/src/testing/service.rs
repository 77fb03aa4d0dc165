use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use serde_json::Value;
use tower::Service;

use super::body::RecordedBody;
use super::exchange::{self, Exchange, unreadable};
use super::hiding::Hiding;
use super::scrub::Scrub;
use crate::transport::{RequestBody, failed};
use tower_agent::error::{BoxError, Error, Result};
use tower_agent_test::Recording;
use tower_agent_test::recording::CallStart;

/// An HTTP service that records its calls, or answers them from a recording; created by
/// [`HttpRecordingLayer`](super::HttpRecordingLayer).
///
/// The inner service of a replay is neither called nor made ready.
#[derive(Clone, Debug)]
pub struct HttpRecorded<S> {
    inner: S,
    recording: Recording,
    scrub: Option<Scrub>,
}

impl<S> HttpRecorded<S> {
    pub(super) fn new(inner: S, recording: Recording, scrub: Option<Scrub>) -> Self {
        Self {
            inner,
            recording,
            scrub,
        }
    }
}

impl<S, B> Service<Request<RequestBody>> for HttpRecorded<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>,
    B: Body<Error: Into<BoxError>>,
{
    type Response = Response<RecordedBody<B>>;
    type Error = Error;
    type Future = ResponseFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // A replay must work where the server cannot be reached.
        if self.recording.is_replay() {
            return Poll::Ready(Ok(()));
        }
        self.inner
            .poll_ready(cx)
            .map_err(|error| failed(error.into()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let hiding = Hiding::of(&request, self.scrub.clone());
        // Recorded before the call, so that calls stand in the order in which they were made.
        let state = match self.recording.begin(exchange::recorded(&request, &hiding)) {
            Ok(CallStart::Record(open)) => CallState::Record {
                future: self.inner.call(request),
                exchange: Some(Exchange::new(open, hiding)),
            },
            Ok(CallStart::Replay(outcome)) => CallState::Replay {
                response: replay(outcome).transpose(),
            },
            Ok(_) => CallState::Replay {
                response: Some(Err(unreadable("unknown kind of start"))),
            },
            Err(error) => CallState::Replay {
                response: Some(Err(error.into())),
            },
        };
        ResponseFuture { state }
    }
}

/// Returns a recorded response, or `None` if the call was dropped before it.
fn replay<B>(outcome: Value) -> Result<Option<Response<RecordedBody<B>>>> {
    let mut outcome = exchange::read(outcome)?;
    let Some(status) = outcome.status else {
        return outcome.error.map_or(Ok(None), Err);
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(unreadable)?;
    *response.headers_mut() = outcome.read_headers().map_err(unreadable)?;
    let frames = outcome.frames.into_iter().map(|frame| frame.into_bytes());
    let frames = frames.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Some(response.map(|()| {
        RecordedBody::replay(frames, outcome.error, outcome.unread)
    })))
}

pin_project! {
    /// The future of an [`HttpRecorded`].
    pub struct ResponseFuture<F, B> {
        #[pin]
        state: CallState<F, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum CallState<F, B> {
        Record {
            #[pin]
            future: F,
            exchange: Option<Exchange>,
        },
        // Without a response, the call was dropped before it, and so will this one be.
        Replay {
            response: Option<Result<Response<RecordedBody<B>>>>,
        },
    }
}

impl<F, B, E> Future for ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<RecordedBody<B>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::Record { future, exchange } => {
                let result = ready!(future.poll(cx)).map_err(|error| failed(error.into()));
                // Polled again after its end, which tower leaves open.
                let Some(exchange) = exchange.take() else {
                    return Poll::Pending;
                };
                Poll::Ready(match result {
                    Ok(response) => {
                        let reading = exchange.answered(response.status(), response.headers());
                        Ok(response.map(|body| RecordedBody::live(body, reading)))
                    }
                    Err(error) => {
                        exchange.failed(&error);
                        Err(error)
                    }
                })
            }
            Projected::Replay { response } => response.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

impl<F, B> fmt::Debug for ResponseFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
