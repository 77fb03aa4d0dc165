use std::fmt;

use super::call::CallState;
use super::draft::Draft;
use super::mapper::Mappers;
use super::queue::Out;
use super::{Delta, Sink};
use crate::error::Result;
use crate::message::Message;

/// One attempt at a streamed answer: it passes deltas on and keeps the whole.
///
/// Dropping it before it has [finished](Self::finish) says that the attempt has failed.
pub struct Attempt {
    said: Draft,
    reader: Option<Reader>,
}

/// Whoever sees the attempt, and how.
struct Reader {
    sink: Sink,
    number: u32,
    /// A mapper that could not be made is told of at the first delta.
    mappers: Result<Mappers>,
    /// What the mappers let through, if there are any.
    seen: Draft,
    is_done: bool,
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
    pub(super) fn new(sink: Sink) -> Self {
        let (seen, is_done) = Default::default();
        let mappers = Mappers::new(sink.frames.as_ref());
        let number = sink.call.look(CallState::open);
        let reader = Reader { sink, number, mappers, seen, is_done };
        Self { said: Draft::default(), reader: Some(reader) }
    }

    /// An attempt that nobody watches: it only keeps the whole.
    #[must_use]
    pub fn unseen() -> Self {
        Self { said: Draft::default(), reader: None }
    }

    /// Passes a delta on, waiting while the queue is full or a [mapper](super::Mapper) is not
    /// ready. Deltas of an attempt beside one that is seen are kept, and shown if they must be.
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
        reader.send(&self.said, delta).await
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
        let message = reader.finish(said).await?;
        Ok(Streamed { message, attempt: Some(reader.number) })
    }
}

impl Reader {
    /// Gives a tool call that has no id, or another's, one of its own: answers are matched by it.
    fn name_apart(&self, said: &Draft, delta: &mut Delta) {
        if let Delta::ToolCall { index, id, .. } = delta
            && (id.is_empty() || said.has_call(id))
        {
            *id = self.sink.call.look(|call| call.name_tool_call(self.number, *index));
        }
    }

    async fn send(&mut self, said: &Draft, delta: Delta) -> Result<()> {
        let mappers = self.mappers.as_mut().map_err(|error| error.clone())?;
        if !mappers.is_empty() {
            let deltas = mappers.map(delta).await?;
            return self.pass(deltas).await;
        }
        tell(&self.sink, self.number, delta, said).await
    }

    /// Passes on what mappers let through.
    async fn pass(&mut self, mut deltas: Vec<Delta>) -> Result<()> {
        for delta in deltas.drain(..) {
            // Arguments whose call was dropped go with it.
            if !delta.is_empty() && self.seen.push(&delta).is_ok() {
                tell(&self.sink, self.number, delta, &self.seen).await?;
            }
        }
        if let Ok(mappers) = &mut self.mappers {
            mappers.give_back(deltas);
        }
        Ok(())
    }

    async fn finish(&mut self, said: Draft) -> Result<Message> {
        let mappers = self.mappers.as_mut().map_err(|error| error.clone())?;
        let said = said.into_message();
        let sent = if mappers.is_empty() {
            said.clone()
        } else {
            let deltas = mappers.flush().await?;
            self.pass(deltas).await?;
            std::mem::take(&mut self.seen).into_message()
        };
        let number = self.number;
        let finish = |call: &mut CallState, out: &mut Out<'_>| call.finish(number, sent, out);
        let told = self.sink.outlet.tell_of(&self.sink.call, finish);
        self.is_done = true;
        told.await?;
        Ok(said)
    }
}

/// Tells of a delta; `draft` is all that is seen of the attempt.
async fn tell(sink: &Sink, attempt: u32, delta: Delta, draft: &Draft) -> Result<()> {
    if delta.is_empty() {
        return Ok(());
    }
    let write = |call: &mut CallState, out: &mut Out<'_>| {
        call.write(attempt, delta, || draft.deltas(), out)
    };
    sink.outlet.tell_of(&sink.call, write).await?
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.is_done {
            self.sink.call.look(|call| call.abandon(self.number));
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("said", &self.said).finish_non_exhaustive()
    }
}
