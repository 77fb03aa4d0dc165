use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body::Frame;
use http_body_util::{Either, Full};
use tokio::time::{Sleep, sleep};

use crate::{AgUiRun, sse};

/// The response body of an [`AgUi`](super::AgUi): an error as JSON, or events.
pub type Body = Either<Full<Bytes>, EventBody>;

/// The maximum size of a frame in bytes.
const FRAME: usize = 16 << 10;

/// The events of a run as server-sent events. Dropping the body stops the run.
pub struct EventBody {
    run: Option<AgUiRun>,
    writer: sse::Writer,
    bytes: Vec<u8>,
    keep_alive: Duration,
    silence: Pin<Box<Sleep>>,
}

impl EventBody {
    pub(super) fn new(run: AgUiRun, keep_alive: Duration) -> Self {
        let silence = Box::pin(sleep(keep_alive));
        let (writer, bytes) = Default::default();
        Self { run: Some(run), writer, bytes, keep_alive, silence }
    }

    /// Writes the available events.
    fn fill(&mut self, cx: &mut Context<'_>) {
        while let Some(run) = &mut self.run
            && self.bytes.len() < FRAME
        {
            match run.poll_next_unpin(cx) {
                Poll::Pending => break,
                Poll::Ready(None) => self.run = None,
                Poll::Ready(Some(event)) => {
                    if let Err(error) = self.writer.write(&event, &mut self.bytes) {
                        tracing::error!(%error, "dropped an event that failed to serialise");
                    }
                }
            }
        }
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        this.fill(cx);
        let bytes = match std::mem::take(&mut this.bytes) {
            bytes if !bytes.is_empty() => Bytes::from(bytes),
            _ if this.run.is_none() => return Poll::Ready(None),
            _ => {
                if this.silence.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                sse::KEEP_ALIVE
            }
        };
        // Not `reset`, which panics for intervals beyond the clock's range.
        this.silence.set(sleep(this.keep_alive));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBody").field("run", &self.run).finish_non_exhaustive()
    }
}
