//! Streaming: a sink in the request, so that a streamed call is still one call.
//!
//! ```text
//! Sink  ->  Attempt  ->  Delta*  ->  Streamed
//! ```
//!
//! Whoever wants to see an answer while it is written puts a [`Sink`] in the request. A provider
//! that streams opens an [`Attempt`] on it, sends deltas and finishes; what it gets back is the
//! whole message, which it answers with. So layers and callbacks see one complete response,
//! streamed or not, and what was shown cannot differ from what was answered.
//!
//! The queue between the two is bounded: a reader that stops reading stops the provider.

mod attempt;
mod delta;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

pub use self::attempt::{Attempt, Streamed};
pub use self::delta::{Chunk, Delta};

/// Where a streamed answer goes. Clones feed the same reader.
///
/// ```
/// use futures::StreamExt;
/// use tower_agent::ModelResponse;
/// use tower_agent::stream::{self, Delta};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let (sink, mut chunks) = stream::channel(8);
/// let mut attempt = sink.open();
/// attempt.send(Delta::Text("Hel".into())).await?;
/// attempt.send(Delta::Text("lo".into())).await?;
/// let response = ModelResponse::from(attempt.finish().await?);
/// assert_eq!(response.message().text(), "Hello");
/// assert_eq!(chunks.next().await.unwrap().delta, Delta::Text("Hel".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sink {
    queue: mpsc::Sender<Chunk>,
    call: u32,
    attempts: Arc<AtomicU32>,
    /// How many calls of the run have had a sink.
    calls: Arc<AtomicU32>,
}

/// A sink, and the stream of what is sent to it; `capacity` deltas wait for the reader at most.
///
/// The stream ends when every clone of the sink is gone.
#[must_use]
pub fn channel(capacity: usize) -> (Sink, Chunks) {
    let (queue, chunks) = mpsc::channel(capacity.max(1));
    let (attempts, calls) = Default::default();
    (Sink { queue, call: 0, attempts, calls }, Chunks(chunks))
}

impl Sink {
    /// Begins an attempt at answering; a provider does so once per call.
    #[must_use]
    pub fn open(&self) -> Attempt {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        Attempt::new(self.call, attempt, self.queue.clone())
    }

    /// The same reader's sink for the next call of the run, whose attempts count from 0 again.
    pub(crate) fn for_next_call(&self) -> Self {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Self { call, attempts: Arc::default(), ..self.clone() }
    }
}

/// What is sent to a [`Sink`], in order.
#[derive(Debug)]
pub struct Chunks(mpsc::Receiver<Chunk>);

impl Stream for Chunks {
    type Item = Chunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        self.0.poll_recv(cx)
    }
}
