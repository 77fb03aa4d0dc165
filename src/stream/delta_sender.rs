use std::fmt;
use std::sync::Arc;

use super::channel::Entered;
use super::emitter::EventEmitter;
use super::mapper::Frame;
use super::{Attempt, EventStream, Mapper, ReaderWait};
use crate::state::State;

/// Where the deltas of one model call go. Clones belong to the same call.
///
/// ```
/// use futures::StreamExt;
/// use tower_agent::ModelResponse;
/// use tower_agent::stream::{self, Delta, EventKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let (sink, mut events) = stream::channel(8);
/// let mut attempt = sink.open();
/// attempt.send(Delta::Text("Hel".into())).await?;
/// attempt.send(Delta::Text("lo".into())).await?;
/// let response = ModelResponse::from(attempt.finish().await?);
/// assert_eq!(response.message().text(), "Hello");
///
/// assert!(matches!(events.next().await.unwrap().kind, EventKind::TextStart { .. }));
/// let EventKind::TextDelta { text, .. } = events.next().await.unwrap().kind else { panic!() };
/// assert_eq!(text, "Hel");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeltaSender {
    pub(super) emitter: EventEmitter,
    pub(super) call: Arc<Entered>,
    pub(super) frames: Option<Arc<Frame>>,
}

/// A sink for one model call, and the stream of what happens in it; `capacity` events wait for
/// the reader at most.
///
/// For a model that is called without an agent. The stream ends when every clone of the sink is
/// gone.
#[must_use]
pub fn channel(capacity: usize) -> (DeltaSender, EventStream) {
    let name = uuid::Uuid::new_v4().to_string().into();
    let (emitter, events) = EventEmitter::new(name, State::default(), capacity);
    (emitter.delta_sender(), events)
}

impl DeltaSender {
    /// Begins an attempt at answering; a provider does so once per call.
    #[must_use]
    pub fn open(&self) -> Attempt {
        Attempt::new(self.clone())
    }

    /// Whether anything of this call has been seen, so that another attempt would have to take it
    /// back.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.call.look(|call| call.is_committed())
    }

    /// Counts the time that the call waits for its reader, from here on.
    #[must_use]
    pub fn reader_wait(&self) -> ReaderWait {
        self.emitter.reader_wait()
    }

    pub(crate) fn begin_frame(&mut self) {
        Frame::begin(&mut self.frames);
    }

    pub(crate) fn map<M: Mapper>(&mut self, factory: impl Fn() -> M + Send + Sync + 'static) {
        Frame::add(&mut self.frames, factory);
    }
}

impl fmt::Debug for DeltaSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaSender").field("call", &self.call).finish_non_exhaustive()
    }
}
