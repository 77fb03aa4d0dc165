//! Streaming: a sink in the request, so that a streamed call is still one call.
//!
//! ```text
//! DeltaSender  ->  Attempt  ->  Delta*  ->  Mapper*  ->  Event*
//!                    \-> Streamed  ->  Response
//! ```
//!
//! [`Agent::stream`](crate::Agent::stream) returns the [`Event`]s of a run. Each model call of such
//! a run has a [`DeltaSender`]. A provider that streams opens an [`Attempt`] on it, sends deltas
//! and finishes; it responds with the complete message that `finish` returns. Layers and callbacks
//! therefore see one complete response, streamed or not.
//!
//! A callback that must see deltas adds a [`Mapper`] in its `before`. Mappers of the innermost band
//! act first; within a band they act in the order in which they were added, like `after`s.
//!
//! # Attempts
//!
//! A retry, a hedge or a fallback starts another attempt at the same call. Only one attempt at a
//! time is visible. Once output of an attempt was streamed, the call is
//! [committed](DeltaSender::is_committed). If another attempt then replaces it, or the call fails,
//! the stream emits [`AttemptDiscarded`](EventKind::AttemptDiscarded). If a callback finally
//! returns something else, the stream emits [`ResponseReplaced`](EventKind::ResponseReplaced) and
//! the new response. Nothing is repeated or mixed: the output that was not discarded equals the
//! response.
//!
//! # Backpressure
//!
//! The queue between the run and its consumer is bounded, and the stream drives the run: a consumer
//! that stops reading stops the provider, down to its socket, and dropping the stream drops the
//! run. A timeout should not count the consumer's time; [`ConsumerWait`] measures it. A consumer
//! that never reads again is let go by a [`ReadTimeout`](crate::serve::ReadTimeout).
//!
//! # Observers
//!
//! A stream has one consumer, and it drives the run. Somebody who only watches takes an
//! [`observer()`]: it is told of every run, streamed or not, and no run waits for it.

// The functions that each delta passes are inlined: without that, `delta of a run, not translated`
// in `benches/counts.json` has a third more instructions.

mod attempt;
mod call;
mod channel;
mod consumer_wait;
mod delta;
mod delta_sender;
mod emitter;
mod end_reason;
mod event;
mod event_stream;
mod listeners;
mod mapper;
mod message_builder;
mod observed;
mod observer;
mod piece;
mod prefix_note;
mod unfinished;
mod wrapper_note;

pub use self::attempt::{Attempt, Streamed};
pub(crate) use self::call::Received;
pub use self::consumer_wait::ConsumerWait;
pub use self::delta::Delta;
pub use self::delta_sender::{DeltaSender, channel};
pub(crate) use self::emitter::EventEmitter;
pub use self::end_reason::EndReason;
pub use self::event::{
    CallbackDecision, CallbackNote, Event, EventKind, FailedAttempt, Invocation, NextAttempt,
    ToolCallResult, ToolCallStart,
};
pub use self::event_stream::EventStream;
pub(crate) use self::listeners::Listeners;
pub use self::mapper::{Mapper, map_fn};
pub(crate) use self::observed::{Observed, ObservedRun};
pub use self::observer::{Observation, Observations, Observer, observer};
pub use self::piece::Piece;
pub use self::prefix_note::{PrefixNote, PromptPart};
pub use self::unfinished::Unfinished;
pub use self::wrapper_note::{CallEnd, FieldChange, WrapperNote};
pub(crate) use self::wrapper_note::{is_passed_on, is_same};
