use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::lock::lock;

/// A stream that is dropped when its reader stops reading.
///
/// A stream drives its run, so a reader that takes nothing keeps all that the run has: its place
/// among those of a server, its conversation, its connection to a provider. A timeout around the
/// run does not help, as nobody polls it. This one does: once the reader has taken nothing for so
/// long, although it was its turn, the stream is dropped as if the reader were gone. While the
/// reader waits for the stream there is no limit.
///
/// [`poll_with`](Self::poll_with) is for other sources of pieces, such as the body of an HTTP
/// response.
///
/// ```
/// use std::time::Duration;
///
/// use futures::{StreamExt, stream};
/// use tower_agent::serve::ReadTimeout;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut pieces = ReadTimeout::new(stream::repeat("more"), Duration::from_secs(60));
/// assert_eq!(pieces.next().await, Some(Ok("more")));
///
/// tokio::time::sleep(Duration::from_secs(180)).await;
/// assert!(pieces.next().await.is_some_and(|piece| piece.is_err()));
/// assert_eq!(pieces.next().await, None);
/// # }
/// ```
pub struct ReadTimeout<S> {
    shared: Arc<Mutex<Watched<S>>>,
    watch: AbortHandle,
    /// The reader has been told that the stream is gone.
    is_told: bool,
}

/// The reader has taken nothing for too long, and the stream was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader took nothing for too long, and the stream was let go")]
pub struct NotRead;

struct Watched<S> {
    /// `None` once it was let go.
    source: Option<S>,
    turn: ReaderTurn,
}

#[derive(Clone, Copy)]
enum ReaderTurn {
    /// The reader waits for the next piece.
    Source,
    /// The reader has a piece, and takes another when it can.
    Reader,
    /// As before, and the watch has seen it.
    Late,
}

impl<S: Send + 'static> ReadTimeout<S> {
    /// Drops a stream whose reader takes nothing for this time, or for up to twice as long: the
    /// reader is looked at once in it.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn new(source: S, time: Duration) -> Self {
        let shared = Arc::new(Mutex::new(Watched {
            source: Some(source),
            turn: ReaderTurn::Reader,
        }));
        let watch = tokio::spawn(watch(Arc::downgrade(&shared), time));
        Self {
            shared,
            watch: watch.abort_handle(),
            is_told: false,
        }
    }

    /// Takes the next piece from the stream, with a function that polls it.
    ///
    /// # Errors
    ///
    /// Fails if the stream is gone.
    pub fn poll_with<T>(
        &mut self,
        poll: impl FnOnce(&mut S) -> Poll<T>,
    ) -> Poll<Result<T, NotRead>> {
        let mut shared = lock(&self.shared);
        let Some(source) = &mut shared.source else {
            return Poll::Ready(Err(NotRead));
        };
        let polled = poll(source);
        shared.turn = if polled.is_pending() {
            ReaderTurn::Source
        } else {
            ReaderTurn::Reader
        };
        polled.map(Ok)
    }
}

/// Drops the source once its reader is late. Ends with either of them.
async fn watch<S>(shared: Weak<Mutex<Watched<S>>>, time: Duration) {
    loop {
        sleep(time).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut shared = lock(&shared);
        match shared.turn {
            ReaderTurn::Source => {}
            ReaderTurn::Reader => shared.turn = ReaderTurn::Late,
            ReaderTurn::Late => {
                let source = shared.source.take();
                // What it does at its end may take a while, and may look at this.
                drop(shared);
                drop(source);
                return;
            }
        }
    }
}

impl<S: Stream + Unpin + Send + 'static> Stream for ReadTimeout<S> {
    type Item = Result<S::Item, NotRead>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_told {
            return Poll::Ready(None);
        }
        self.poll_with(|stream| stream.poll_next_unpin(cx))
            .map(|polled| match polled {
                Ok(piece) => piece.map(Ok),
                Err(gone) => {
                    self.is_told = true;
                    Some(Err(gone))
                }
            })
    }
}

impl<S> Drop for ReadTimeout<S> {
    fn drop(&mut self) {
        self.watch.abort();
        // Now, also if the watch looks at it at this moment and would be the last to have it.
        let source = lock(&self.shared).source.take();
        drop(source);
    }
}

impl<S> fmt::Debug for ReadTimeout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTimeout").finish_non_exhaustive()
    }
}
