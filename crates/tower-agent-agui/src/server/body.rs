use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tokio::time::{Sleep, sleep};

use super::limits::Limits;
use crate::lock::lock;
use crate::permit::{Permit, Stop};
use crate::run::AgUiRun;
use crate::sse;
use crate::wire::{Event, RunError};
use tower_agent::error::ErrorKind;
use tower_agent::serve::{NotRead, ReadTimeout};

/// The response body of an [`AgUi`](super::AgUi): an error as JSON, or the events of a run or of a
/// stored thread as server-sent events. Dropping the body stops the run, and so does a client that
/// [does not read](super::AgUiBuilder::read_timeout).
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Error(Full<Bytes>),
    /// A stored thread, which counts as a run until it is sent.
    Thread {
        thread: ReadTimeout<Thread>,
        /// In bytes, of what is left.
        length: usize,
    },
    /// `None` once the run was let go, and the client has been told.
    Run(Option<ReadTimeout<EventBody>>),
}

struct Thread {
    /// `None` once it was taken.
    bytes: Option<Bytes>,
    _sending: Arc<Sending>,
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
        Self(Kind::Error(Full::new(json)))
    }

    pub(super) fn thread(events: &[Event], permit: Permit, read_time: Duration) -> Self {
        let mut writer = sse::Writer::new();
        let mut bytes = Vec::new();
        for event in events {
            write(&mut writer, event, &mut bytes);
        }
        let sending = Arc::new(Sending(Mutex::new(None)));
        let stop: Weak<Sending> = Arc::downgrade(&sending);
        permit.started(stop);
        *lock(&sending.0) = Some(permit);
        let length = bytes.len();
        let thread = Thread {
            bytes: Some(bytes.into()),
            _sending: sending,
        };
        Self(Kind::Thread {
            thread: ReadTimeout::new(thread, read_time),
            length,
        })
    }

    pub(super) fn events(run: AgUiRun, limits: Limits) -> Self {
        let events = EventBody {
            run: Some(run),
            writer: sse::Writer::new(),
            bytes: Vec::new(),
            keep_alive: limits.keep_alive,
            silence: Box::pin(sleep(limits.keep_alive)),
        };
        Self(Kind::Run(Some(ReadTimeout::new(events, limits.read_time))))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = NotRead;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NotRead>>> {
        match &mut self.0 {
            Kind::Error(bytes) => Pin::new(bytes)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Kind::Thread { thread, length } => {
                let taken = ready!(thread.poll_with(|thread| Poll::Ready(thread.bytes.take())));
                *length = 0;
                Poll::Ready(taken.transpose().map(|bytes| bytes.map(Frame::data)))
            }
            Kind::Run(run) => {
                let Some(events) = run else {
                    return Poll::Ready(None);
                };
                let frame = match ready!(events.poll_with(|events| events.poll_frame(cx))) {
                    Ok(frame) => frame,
                    Err(NotRead) => {
                        *run = None;
                        Some(Frame::data(let_go()))
                    }
                };
                Poll::Ready(frame.map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Error(bytes) => bytes.is_end_stream(),
            Kind::Thread { length, .. } => *length == 0,
            // Only the next poll shows whether the run has ended.
            Kind::Run(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Error(bytes) => bytes.size_hint(),
            Kind::Thread { length, .. } => SizeHint::with_exact(*length as u64),
            Kind::Run(_) => SizeHint::default(),
        }
    }
}

/// Returns the end of a run whose client did not read, for one that reads after all.
fn let_go() -> Bytes {
    let message =
        "the client read nothing for too long, so the run was stopped; its progress is saved";
    let error = RunError::new(message).with_code(ErrorKind::Timeout.code());
    let mut bytes = Vec::new();
    write(&mut sse::Writer::new(), &error.into(), &mut bytes);
    bytes.into()
}

impl EventBody {
    /// Writes the available events.
    fn fill(&mut self, cx: &mut Context<'_>) {
        // As many as are ready share a frame, up to a limit: a fast model must not fill the memory
        // while the client reads slowly.
        let Some(run) = &mut self.run else { return };
        let mut run = run.lock();
        let _entered = run.enter();
        run.look_at_clock(cx);
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

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}
