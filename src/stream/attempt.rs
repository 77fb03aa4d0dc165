use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::Delta;
use super::call::{Call, CallHandle};
use super::channel::EventBatch;
use super::emitter::EventEmitter;
use super::mapper::{Frame, Mappers};
use super::message_builder::MessageBuilder;
use crate::error::Result;
use crate::message::{Message, is_call_id};
use crate::on_drop::OnDrop;

/// One attempt at a streamed answer: it passes deltas on and keeps the whole.
///
/// Dropping it before it has [finished](Self::finish) says that the attempt has failed.
pub struct Attempt {
    said: MessageBuilder,
    reader: Option<OnDrop<Reader>>,
}

/// Whoever sees the attempt, and how.
struct Reader {
    emitter: EventEmitter,
    call: Arc<CallHandle>,
    number: u32,
    /// A mapper that could not be made is told of at the first delta, and one that has failed at
    /// every other.
    mappers: Result<Mappers>,
    /// What the mappers let through, if there are any.
    seen: MessageBuilder,
}

/// The whole of a streamed answer. A [`ModelResponse`](crate::ModelResponse) is made from it, so
/// that what is answered is what was said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Streamed {
    /// What the deltas add up to.
    pub message: Message,
    /// Which attempt at its call this was, from 0. `None` if nobody watched.
    pub attempt: Option<u32>,
}

impl Attempt {
    pub(super) fn new(
        emitter: EventEmitter,
        call: Arc<CallHandle>,
        frames: Option<&Arc<Frame>>,
    ) -> Self {
        let mappers = Mappers::new(frames);
        let number = call.look(Call::open);
        let reader = Reader { emitter, call, number, mappers, seen: MessageBuilder::default() };
        let reader = OnDrop::new(reader, |it| it.call.look(|call| call.abandon(it.number)));
        Self { said: MessageBuilder::default(), reader: Some(reader) }
    }

    /// An attempt that nobody watches: it only keeps the whole.
    #[must_use]
    pub fn unseen() -> Self {
        Self { said: MessageBuilder::default(), reader: None }
    }

    /// Passes a delta on, waiting while the queue is full or a [mapper](super::Mapper) is not
    /// ready. Deltas of an attempt beside one that is seen are kept, and shown if they must be.
    ///
    /// Dropped while it waits, it has passed the delta on all the same: to the reader, or to the
    /// mappers, which go on with it at the next `send` or at the end.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](crate::ErrorKind::Cancelled) when the reader is gone or the call has been
    /// answered without this attempt, [`Protocol`](crate::ErrorKind::Protocol) for arguments of a
    /// call that has not begun, and whatever a mapper fails with.
    pub async fn send(&mut self, mut delta: Delta) -> Result<()> {
        let Some(reader) = &mut self.reader else { return self.said.push(&delta) };
        reader.name_apart(&self.said, &mut delta);
        self.said.push(&delta)?;
        let mappers = reader.mappers()?;
        let has_room = if mappers.is_empty() {
            reader.tell(delta, &self.said)?
        } else {
            mappers.push(delta);
            poll_fn(|cx| reader.poll_map(cx, false)).await?
        };
        match has_room {
            true => Ok(()),
            false => reader.emitter.room().await,
        }
    }

    /// Ends the attempt and returns the whole, which the response must be made from.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send), for what mappers held back.
    pub async fn finish(mut self) -> Result<Streamed> {
        let said = std::mem::take(&mut self.said);
        let Some(reader) = &mut self.reader else {
            return Ok(Streamed { message: said.into_message(), attempt: None });
        };
        let (message, has_room) = reader.finish(said).await?;
        reader.disarm();
        if !has_room {
            reader.emitter.room().await?;
        }
        Ok(Streamed { message, attempt: Some(reader.number) })
    }
}

impl Reader {
    /// Gives a tool call that has no id, or another's, one of its own: answers are matched by it.
    #[inline]
    fn name_apart(&self, said: &MessageBuilder, delta: &mut Delta) {
        if let Delta::ToolCall { index, id, .. } = delta
            && (!is_call_id(id) || said.has_call(id))
        {
            *id = self.call.look(|call| call.name_tool_call(self.number, *index));
        }
    }

    fn mappers(&mut self) -> Result<&mut Mappers> {
        self.mappers.as_mut().map_err(|error| error.clone())
    }

    /// Tells of a delta; whether there is still room. `draft` is all that is seen of the attempt.
    #[inline]
    fn tell(&self, delta: Delta, draft: &MessageBuilder) -> Result<bool> {
        if delta.is_empty() {
            return Ok(true);
        }
        let (told, has_room) = self.emitter.push_of(&self.call, |call, out| {
            call.write(self.number, delta, || draft.deltas(), out)
        })?;
        told.map(|()| has_room)
    }

    /// Passes on what the mappers let through; whether there is still room.
    fn poll_map(&mut self, cx: &mut Context<'_>, is_end: bool) -> Poll<Result<bool>> {
        let mut has_room = true;
        loop {
            let mut mapped = match ready!(self.mappers()?.poll(cx, is_end)) {
                Ok(Some(mapped)) => mapped,
                Ok(None) => return Poll::Ready(Ok(has_room)),
                Err(error) => {
                    // What they would make of the rest nobody knows.
                    self.mappers = Err(error.clone());
                    return Poll::Ready(Err(error));
                }
            };
            for delta in mapped.drain(..) {
                // Arguments whose call was dropped go with it.
                if !delta.is_empty() && self.seen.push(&delta).is_ok() {
                    has_room = self.tell(delta, &self.seen)?;
                }
            }
            self.mappers()?.give_back(mapped);
        }
    }

    async fn finish(&mut self, said: MessageBuilder) -> Result<(Message, bool)> {
        let said = said.into_message();
        let mappers = self.mappers()?;
        let sent = if mappers.is_empty() {
            said.clone()
        } else {
            if !poll_fn(|cx| self.poll_map(cx, true)).await? {
                self.emitter.room().await?;
            }
            std::mem::take(&mut self.seen).into_message()
        };
        let number = self.number;
        let finish = |call: &mut Call, out: &mut EventBatch<'_>| call.finish(number, sent, out);
        let ((), has_room) = self.emitter.push_of(&self.call, finish)?;
        Ok((said, has_room))
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("said", &self.said).finish_non_exhaustive()
    }
}
