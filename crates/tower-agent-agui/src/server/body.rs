use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tokio::time::{Sleep, sleep};

use crate::lock::lock;
use crate::permit::{Permit, Stop};
use crate::run::AgUiRun;
use crate::sse;
use crate::wire::Event;

/// The response body of an [`AgUi`](super::AgUi): an error as JSON, or the events of a run or of a
/// stored thread as server-sent events. Dropping the body stops the run.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    /// An error, or a stored thread, which counts as a run until it is sent.
    Whole {
        bytes: Full<Bytes>,
        _sending: Option<Arc<Sending>>,
    },
    Events(Box<EventBody>),
}

/// The permit for a response, until it is sent or the server has shut down.
#[derive(Debug)]
struct Sending(Mutex<Option<Permit>>);

impl Stop for Sending {
    fn stop(&self) {
        // A client that does not read must not keep the server from its end.
        lock(&self.0).take();
    }
}

/// The size in bytes at which a frame is sent. The last event in it may exceed it.
const FRAME: usize = 16 << 10;

struct EventBody {
    /// `None` once the run has ended.
    run: Option<AgUiRun>,
    writer: sse::Writer,
    /// The next frame.
    bytes: Vec<u8>,
    keep_alive: Duration,
    /// The time until the next keep-alive comment, if no event comes before.
    silence: Pin<Box<Sleep>>,
}

impl Body {
    pub(super) fn error(json: Bytes) -> Self {
        Self(Kind::Whole {
            bytes: Full::new(json),
            _sending: None,
        })
    }

    pub(super) fn thread(events: &[Event], permit: Permit) -> Self {
        let mut writer = sse::Writer::new();
        let mut bytes = Vec::new();
        for event in events {
            write(&mut writer, event, &mut bytes);
        }
        let sending = Arc::new(Sending(Mutex::new(None)));
        let stop: Weak<Sending> = Arc::downgrade(&sending);
        permit.started(stop);
        *lock(&sending.0) = Some(permit);
        Self(Kind::Whole {
            bytes: Full::new(bytes.into()),
            _sending: Some(sending),
        })
    }

    pub(super) fn events(run: AgUiRun, keep_alive: Duration) -> Self {
        let events = EventBody {
            run: Some(run),
            writer: sse::Writer::new(),
            bytes: Vec::new(),
            keep_alive,
            silence: Box::pin(sleep(keep_alive)),
        };
        Self(Kind::Events(Box::new(events)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole { bytes, .. } => Pin::new(bytes).poll_frame(cx),
            Kind::Events(body) => body.poll_frame(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { bytes, .. } => bytes.is_end_stream(),
            // Only the next poll shows whether the run has ended.
            Kind::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole { bytes, .. } => bytes.size_hint(),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

impl EventBody {
    /// Writes the available events.
    fn fill(&mut self, cx: &mut Context<'_>) {
        // As many as are ready share a frame, up to a limit: a fast model must not fill the memory
        // while the client reads slowly.
        let Some(run) = &mut self.run else { return };
        let mut run = run.lock();
        let _entered = run.enter();
        let mut is_over = false;
        while !is_over && self.bytes.len() < FRAME {
            match run.poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(None) => is_over = true,
                Poll::Ready(Some(event)) => write(&mut self.writer, &event, &mut self.bytes),
            }
        }
        drop(run);
        if is_over {
            self.run = None;
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        self.fill(cx);
        // Written events go out before the end, and before any comment.
        let bytes = if !self.bytes.is_empty() {
            Bytes::from(std::mem::take(&mut self.bytes))
        } else if self.run.is_none() {
            return Poll::Ready(None);
        } else if self.silence.as_mut().poll(cx).is_ready() {
            sse::KEEP_ALIVE
        } else {
            return Poll::Pending;
        };
        // Not `reset`, which panics for intervals beyond the clock's range.
        self.silence.set(sleep(self.keep_alive));
        Poll::Ready(Some(Frame::data(bytes)))
    }
}

fn write(writer: &mut sse::Writer, event: &Event, bytes: &mut Vec<u8>) {
    // The rest of the run is still of use to the client.
    if let Err(error) = writer.write(event, bytes) {
        tracing::error!(%error, "dropped an event that failed to serialise");
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBody")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
