use super::event::Event;
use super::fault::Fault;
use tower_agent::message::Metadata;
use tower_agent::model::ModelResponse;
use tower_agent::stream::{Piece, Streamed};

/// Reads one response, without I/O: events in, pieces of the message out.
///
/// The pieces appended to `out` are passed on in order before the next event is read, except empty
/// deltas. They are lost if the method fails.
///
/// An event or a response that could not be read is read again if it has half a character in it,
/// mended: read all of one before anything is kept of it.
///
/// Be lenient: unknown events and fields, missing fields and `null` are not errors. An error that
/// the provider reports, and a response that cannot be complete, are.
pub trait Decoder: Send {
    /// Reads an event of a streamed response.
    ///
    /// After [`Done`](Progress::Done) nothing more is read, since some servers keep the connection
    /// open.
    ///
    /// # Errors
    ///
    /// Fails with what the provider reported, or how the event violates the protocol.
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault>;

    /// Reads a complete response that is not streamed. Servers may send one even if a stream was
    /// requested.
    ///
    /// # Errors
    ///
    /// Fails as [`event`](Self::event) does, and if the response is incomplete.
    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault>;

    /// Ends a streamed response whose body has ended without an event that was
    /// [`Done`](Progress::Done).
    ///
    /// Override it for a protocol that has no last event. Defaults to the error
    /// [`incomplete`](Fault::incomplete).
    ///
    /// # Errors
    ///
    /// Fails if the response is incomplete.
    fn end(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let _ = out;
        Err(Fault::incomplete())
    }

    /// Creates the response from the message, which consists of all pieces: adds usage, finish
    /// reason and provider data. Metadata is added by [`HttpModel`](crate::HttpModel).
    fn finish(self, streamed: Streamed) -> ModelResponse;

    /// Returns the id of the response as far as it is known. It becomes the request id as well if
    /// the headers have none. Defaults to `None`.
    fn id(&self) -> Option<&str> {
        None
    }

    /// Returns the model that serves the call, as far as it is known. Defaults to `None`.
    fn model(&self) -> Option<&str> {
        None
    }

    /// Adds what the response says about itself beside id and model, such as its cost. Defaults to
    /// nothing.
    fn describe(&self, _: &mut Metadata) {}
}

/// Replaces what is known of a response, such as its id, which most events repeat.
#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
pub(crate) fn keep(known: &mut Option<String>, new: Option<&str>) {
    if new.is_some() && known.as_deref() != new {
        *known = new.map(str::to_owned);
    }
}

/// The progress of a streamed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// More events follow.
    More,
    /// The response is complete.
    Done,
}
