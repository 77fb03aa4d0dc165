//! Streaming: a sink in the request, so that a streamed call is still one call.
//!
//! ```text
//! DeltaSender  ->  Attempt  ->  Delta*  ->  Mapper*  ->  Event*
//!                    \-> Streamed  ->  Response
//! ```
//!
//! Whoever wants to see a run while it happens calls [`Agent::stream`](crate::Agent::stream), and
//! gets [`Event`]s. Each model call of such a run carries a [`DeltaSender`]. A provider that streams opens
//! an [`Attempt`] on it, sends deltas and finishes; what it gets back is the whole message, which
//! it answers with. So layers and callbacks see one complete response, streamed or not.
//!
//! A callback that must see deltas gives a [`Mapper`] in its `before`. Mappers of the innermost
//! band act first, those of one band in the order they were given, as `after`s do.
//!
//! # Attempts
//!
//! A retry, a hedge or a fallback begins another attempt at the same call. One attempt at a time
//! is let through. Once something of an attempt was seen the call is
//! [committed](DeltaSender::is_committed); if another attempt takes its place, or the call fails, the
//! stream says that it was [discarded](EventKind::AttemptDiscarded). And if in the end a callback
//! answers with something else than what was seen, the stream says so
//! [too](EventKind::ResponseReplaced), and shows that. So nothing is repeated or mixed: what was
//! seen and not taken back is what was answered.
//!
//! # Backpressure
//!
//! The queue between the run and its reader is bounded, and the stream drives the run: a reader
//! that stops reading stops the provider, down to its socket, and dropping the stream drops the
//! run. A timeout that counts a reader's time would blame the model for it;
//! [`ReaderWait`] tells how much that was.

mod attempt;
mod call;
mod channel;
mod delta;
mod delta_sender;
mod emitter;
mod event;
mod event_stream;
mod mapper;
mod message_builder;
mod reader_wait;

pub use self::attempt::{Attempt, Streamed};
pub use self::delta::Delta;
pub use self::delta_sender::{DeltaSender, channel};
pub(crate) use self::emitter::EventEmitter;
pub use self::event::{CallbackNote, Decision, Event, EventKind, Invocation};
pub use self::event_stream::EventStream;
pub use self::mapper::{MapFn, Mapper, map_fn};
pub use self::reader_wait::ReaderWait;
