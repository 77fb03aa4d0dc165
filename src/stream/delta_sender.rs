use std::fmt;
use std::sync::Arc;

use super::attempt::Attempt;
use super::call::{CallHandle, Received, VisibleCall};
use super::channel::EventBatch;
use super::consumer_wait::ConsumerWait;
use super::emitter::EventEmitter;
use super::event_stream::EventStream;
use super::mapper::{Frame, Mapper};
use super::unfinished::Unfinished;
use crate::error::ErrorKind;
use crate::message::{Message, MessageId};
use crate::state::State;

/// Receives the deltas of one model call. Clones belong to the same call.
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
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeltaSender {
    emitter: EventEmitter,
    call: Arc<CallHandle>,
    /// The mappers of the bands that the request has entered, innermost first.
    frames: Option<Arc<Frame>>,
}

/// Creates a sink for one model call, and the stream of its events; at most `capacity` events wait
/// for the consumer.
///
/// Use it for a model that is called without an agent. The stream ends when every clone of the sink
/// is dropped.
#[must_use]
pub fn channel(capacity: usize) -> (DeltaSender, EventStream) {
    // There is no run to derive an id from, and streams of several models may end up in one place.
    let name = uuid::Uuid::new_v4().to_string().into();
    let (emitter, events) = EventEmitter::new(name, State::default(), capacity);
    let id = MessageId::minted(emitter.run_name(), 0);
    (DeltaSender::new(emitter, id), events)
}

impl DeltaSender {
    pub(crate) fn new(emitter: EventEmitter, id: MessageId) -> Self {
        let call = Arc::new(emitter.enter_call(id));
        Self {
            emitter,
            call,
            frames: None,
        }
    }

    /// Ends the call with its response, from the attempt with that number, if there was one.
    pub(crate) async fn settle(&self, answer: Option<(&Message, Option<u32>)>) {
        self.emitter.settle(&self.call, answer).await;
    }

    /// Gives the response the id of the message that shows it.
    pub(crate) fn identify(&self, response: &mut Message) {
        let id = self.call.look(|call| call.id_of(response));
        // Usually it has it: unchanged, it stays shared.
        if response.id() != Some(&id) {
            response.set_id(id);
        }
    }

    /// Records the error of an attempt, or of the call, for the event that discards its output.
    pub(crate) fn fail(&self, kind: ErrorKind) {
        self.call.look(|call| call.failure = Some(kind));
    }

    pub(crate) fn drop_call(&self) {
        let settle = |call: &mut VisibleCall, out: &mut EventBatch<'_>| call.settle(None, out);
        drop(self.emitter.push_of(&self.call, settle));
    }

    /// Starts an attempt at a response; a provider does so once for each call.
    #[must_use]
    pub fn open(&self) -> Attempt {
        self.attempt(false)
    }

    /// Starts an attempt that shows the output of another call as it comes, for a layer that
    /// answers with it: if the attempt does not finish, nothing was used for it.
    #[must_use]
    pub fn open_replay(&self) -> Attempt {
        self.attempt(true)
    }

    fn attempt(&self, is_replay: bool) -> Attempt {
        Attempt::new(
            self.emitter.clone(),
            self.call.clone(),
            self.frames.as_ref(),
            is_replay,
        )
    }

    /// Shows the response as the message with this id: for a layer that answers a call as it was
    /// answered in an earlier process. Call it before the first attempt.
    pub fn set_message_id(&self, id: MessageId) {
        self.call.look(|call| call.message = id);
    }

    /// Returns whether output of this call was streamed, so that another attempt would discard it.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.call.look(|call| call.is_committed())
    }

    /// Returns what had been received of the attempts of this call that did not finish, in the
    /// order in which they were dropped.
    ///
    /// A provider may charge for them. In the `on_end` of a callback, the attempts of a call that
    /// was dropped are among them.
    ///
    /// ```
    /// use tower_agent::Usage;
    /// use tower_agent::stream::{self, Delta, Piece};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tower_agent::Result<()> {
    /// let (sink, _events) = stream::channel(8);
    /// let mut attempt = sink.open();
    /// attempt.send(Piece::Usage(Usage::new(20, 1))).await?;
    /// attempt.send(Delta::Text("Four".into())).await?;
    /// drop(attempt);
    ///
    /// let unfinished = sink.unfinished();
    /// assert_eq!(unfinished.len(), 1);
    /// assert_eq!(unfinished[0].usage, Usage::new(20, 1));
    /// assert_eq!(unfinished[0].text_len, 4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn unfinished(&self) -> Vec<Unfinished> {
        self.call.look(|call| call.unfinished.clone())
    }

    pub(crate) fn received(&self) -> Received {
        Received(self.call.clone())
    }

    /// Returns a counter of the time that the call waits for its consumer from now on.
    #[must_use]
    pub fn consumer_wait(&self) -> ConsumerWait {
        self.emitter.consumer_wait()
    }

    /// Returns the number of [mappers](super::Mapper) that callbacks have added so far.
    #[must_use]
    pub fn mappers(&self) -> usize {
        self.frames.as_ref().map_or(0, |frames| frames.mappers())
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
        f.debug_struct("DeltaSender")
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}
