use std::fmt;
use std::future::{Future, poll_fn};
use std::iter;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::call::{CallHandle, VisibleCall};
use super::delta::Delta;
use super::emitter::EventEmitter;
use super::mapper::{Frame, Mappers};
use super::message_builder::{self, MessageBuilder};
use super::piece::Piece;
use super::unfinished::Unfinished;
use crate::error::Result;
use crate::message::{CallIds, Message, Part};
use crate::on_drop::OnDrop;

/// One attempt at a streamed response: it passes deltas on and assembles the message.
///
/// If it is dropped before [`finish`](Self::finish), the attempt has failed.
pub struct Attempt {
    draft: MessageBuilder,
    reader: Option<OnDrop<Reader>>,
}

/// The consumer of the attempt, and its mappers.
struct Reader {
    emitter: AttemptEmitter,
    ids: CallIds,
    /// The error of one that could not be created or has failed, for every later delta.
    mappers: Result<Mappers>,
    /// The deltas that the mappers let through, while they are emitted.
    mapped: Vec<Delta>,
    seen: MessageBuilder,
    /// The output of the attempt, for the call if it does not finish.
    received: Unfinished,
    /// It shows the output of another call, which has used what there was to use.
    is_replay: bool,
}

struct AttemptEmitter {
    emitter: EventEmitter,
    call: Arc<CallHandle>,
    number: u32,
}

/// A complete streamed response. Create the [`ModelResponse`](crate::ModelResponse) from it, so
/// that the response equals what was streamed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Streamed {
    /// The message made of all deltas.
    pub message: Message,
    /// The number of the attempt at its call, from 0. `None` if the call was not streamed.
    pub attempt: Option<u32>,
}

impl Streamed {
    /// Creates the response that consists of these pieces, none of which was streamed.
    ///
    /// ```
    /// use tower_agent::Message;
    /// use tower_agent::stream::{Delta, Streamed};
    ///
    /// let pieces = ["Four", "."].map(|text| Delta::Text(text.to_owned()).into());
    /// assert_eq!(Streamed::from_pieces(pieces)?.message, Message::assistant("Four."));
    /// # Ok::<_, tower_agent::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`Protocol`](crate::ErrorKind::Protocol) for arguments of a call that has not
    /// started.
    pub fn from_pieces(pieces: impl IntoIterator<Item = Piece>) -> Result<Self> {
        let mut attempt = Attempt::unseen();
        for piece in pieces {
            attempt.add(piece)?;
        }
        Ok(Self {
            message: std::mem::take(&mut attempt.draft).into_message(),
            attempt: None,
        })
    }
}

impl Attempt {
    pub(super) fn new(
        emitter: EventEmitter,
        call: Arc<CallHandle>,
        frames: Option<&Arc<Frame>>,
        is_replay: bool,
    ) -> Self {
        let mappers = Mappers::new(frames);
        // Numbered when it is opened: an attempt may replace one that had finished before that.
        let number = call.look(VisibleCall::open);
        let emitter = AttemptEmitter {
            emitter,
            call,
            number,
        };
        let reader = Reader {
            emitter,
            ids: CallIds::new(),
            mappers,
            mapped: Vec::new(),
            seen: MessageBuilder::default(),
            received: Unfinished::default(),
            is_replay,
        };
        let reader = OnDrop::new(reader, |reader| {
            let Reader {
                emitter,
                received,
                is_replay,
                ..
            } = reader;
            let received = if *is_replay {
                Unfinished::default()
            } else {
                *received
            };
            // Not taken back yet: it stays visible until another attempt has output, or the call
            // ends without one.
            emitter
                .call
                .look(|call| call.abandon(emitter.number, received));
        });
        Self {
            draft: MessageBuilder::default(),
            reader: Some(reader),
        }
    }

    /// Creates an attempt that is not streamed and only assembles the message.
    #[must_use]
    pub fn unseen() -> Self {
        Self {
            draft: MessageBuilder::default(),
            reader: None,
        }
    }

    /// Adds a delta, a complete [`Part`], or the [end of a part](Piece::ReasoningEnd), and passes
    /// on what it shows. Then waits while the queue is full or a [mapper](super::Mapper) is not
    /// ready. Deltas of an attempt parallel to the visible one are kept, and emitted if that one
    /// fails.
    ///
    /// The delta is added at once. If the future is dropped, it is still passed on: to the
    /// consumer, or to the mappers, which continue with it at the next `send` or at the end.
    ///
    /// # Errors
    ///
    /// Fails with [`Cancelled`](crate::ErrorKind::Cancelled) if the consumer has disconnected or
    /// the call has a response from another attempt, with [`Protocol`](crate::ErrorKind::Protocol)
    /// for arguments of a call that has not started, and with the error of a mapper.
    //
    // Not an async fn, which would store the piece.
    #[inline]
    pub fn send(&mut self, piece: impl Into<Piece>) -> impl Future<Output = Result<()>> {
        let shown = self.add(piece.into());
        async move {
            let mut has_room = shown?;
            let Some(reader) = &mut self.reader else {
                return Ok(());
            };
            if !reader.mappers()?.is_empty() {
                has_room = poll_fn(|cx| reader.poll_map(cx, false)).await?;
            }
            if has_room {
                return Ok(());
            }
            reader.emitter.room().await
        }
    }

    /// Adds a piece, and passes on what it shows: to the consumer, or to the mappers, which do not
    /// run yet. Returns whether the consumer has capacity for more.
    #[inline]
    fn add(&mut self, piece: Piece) -> Result<bool> {
        match piece {
            Piece::Delta(delta) => return self.add_delta(delta),
            Piece::Part(part) => return self.add_part(part),
            Piece::ReasoningEnd(provider) => self.draft.end_reasoning(provider),
            Piece::TextEnd(provider) => self.draft.end_text(provider),
            Piece::Usage(usage) => {
                if let Some(reader) = &mut self.reader {
                    reader.received.usage = usage.known().unwrap_or_default();
                }
            }
        }
        Ok(true)
    }

    #[inline]
    fn add_delta(&mut self, mut delta: Delta) -> Result<bool> {
        if let Some(reader) = &mut self.reader {
            reader.claim_id(&mut delta);
        }
        self.draft.push(&delta)?;
        self.show(iter::once(delta))
    }

    #[inline(never)]
    fn add_part(&mut self, mut part: Part) -> Result<bool> {
        let index = message_builder::index_of_part(self.draft.len());
        let mut deltas: Vec<_> = message_builder::of_part(index, &part).collect();
        if let (Some(reader), Some(first)) = (&mut self.reader, deltas.first_mut()) {
            reader.claim_id(first);
            if let (Part::ToolCall(call), Delta::ToolCall { id, .. }) = (&mut part, first) {
                // The message must have the id that was streamed.
                call.id = id.clone();
            }
        }
        self.draft.push_part(part, false);
        self.show(deltas.into_iter())
    }

    /// Passes on what was just added to the message.
    #[inline]
    fn show(&mut self, deltas: impl Iterator<Item = Delta>) -> Result<bool> {
        let Some(reader) = &mut self.reader else {
            return Ok(true);
        };
        let mappers = reader.mappers()?;
        if mappers.is_empty() {
            return reader.emitter.emit(deltas, &self.draft);
        }
        deltas.for_each(|delta| mappers.push(delta));
        Ok(true)
    }

    /// Ends the attempt and returns the complete response.
    ///
    /// # Errors
    ///
    /// Fails as [`send`](Self::send) does, for deltas that mappers held back.
    pub async fn finish(mut self) -> Result<Streamed> {
        let draft = std::mem::take(&mut self.draft);
        let Some(reader) = &mut self.reader else {
            return Ok(Streamed {
                message: draft.into_message(),
                attempt: None,
            });
        };
        // It may be dropped while a mapper holds back the end, and the draft has moved.
        reader.received.text_len = draft.text_len();
        let AttemptEmitter { call, number, .. } = &reader.emitter;
        let number = *number;
        let mut message = draft.into_message();
        message.set_id(call.look(|call| call.message_of(number)));
        let sent = if reader.mappers()?.is_empty() {
            // A clone shares its content, by which the end of the call sees that the two are the
            // same.
            message.clone()
        } else {
            if !poll_fn(|cx| reader.poll_map(cx, true)).await? {
                reader.emitter.room().await?;
            }
            std::mem::take(&mut reader.seen).into_message()
        };
        let AttemptEmitter { emitter, call, .. } = &reader.emitter;
        let ((), has_room) = emitter.push_of(call, |call, out| call.finish(number, sent, out))?;
        if !has_room {
            // Complete, and visible as such. Of a call that is dropped here, what it has used is
            // counted as that of any other without a response.
            reader.emitter.room().await?;
        }
        reader.disarm();
        Ok(Streamed {
            message,
            attempt: Some(number),
        })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Measured once, here: to count each delta would cost every stream.
        if let Some(reader) = &mut self.reader {
            reader.received.text_len += self.draft.text_len();
        }
    }
}

impl Reader {
    /// Gives a tool call with an empty or duplicate id a new one: results refer to calls by id.
    #[inline]
    fn claim_id(&mut self, delta: &mut Delta) {
        if let Delta::ToolCall { index, id, .. } = delta {
            let AttemptEmitter { call, number, .. } = &self.emitter;
            *id = self.ids.claim(id, || {
                call.look(|call| call.name_tool_call(*number, *index))
            });
        }
    }

    fn mappers(&mut self) -> Result<&mut Mappers> {
        self.mappers.as_mut().map_err(|error| error.clone())
    }

    /// Emits what the mappers let through; returns whether there is capacity for more.
    fn poll_map(&mut self, cx: &mut Context<'_>, is_end: bool) -> Poll<Result<bool>> {
        let mut has_room = true;
        loop {
            let Self {
                emitter,
                mappers,
                mapped,
                seen,
                ..
            } = self;
            let mapping = mappers.as_mut().map_err(|error| error.clone())?;
            match ready!(mapping.poll(cx, is_end, mapped)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(has_room)),
                Err(error) => {
                    // After an error, the state of the mappers is unknown.
                    *mappers = Err(error.clone());
                    return Poll::Ready(Err(error));
                }
            }
            for delta in mapped.drain(..) {
                // If a mapper dropped a call, its arguments are dropped too.
                if !delta.is_empty() && seen.push(&delta).is_ok() {
                    has_room = emitter.emit(iter::once(delta), seen)?;
                }
            }
        }
    }
}

impl AttemptEmitter {
    /// Emits deltas of the visible message `draft`; returns whether there is room.
    #[inline]
    fn emit(
        &self,
        mut deltas: impl Iterator<Item = Delta>,
        draft: &MessageBuilder,
    ) -> Result<bool> {
        let (written, has_room) = self.emitter.push_of(&self.call, |call, out| {
            call.write(self.number, &mut deltas, || draft.deltas(), out)
        })?;
        written.map(|()| has_room)
    }

    fn room(&self) -> impl Future<Output = Result<()>> {
        self.emitter.room()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("draft", &self.draft)
            .finish_non_exhaustive()
    }
}
