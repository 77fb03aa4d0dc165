use super::delta::Delta;
use crate::message::{Part, ProviderData, Usage};

/// A piece that a provider adds to the message of its [attempt](super::Attempt).
///
/// The consumer and the mappers receive deltas only: those of a complete part are its text, its
/// reasoning or its tool call.
///
/// ```
/// use serde_json::json;
/// use tower_agent::message::ProviderData;
/// use tower_agent::stream::{Delta, Piece, Streamed};
///
/// let mut signature = ProviderData::default();
/// signature.set("anthropic", json!({ "signature": "EqQ" }));
///
/// let thought = Delta::Reasoning("Two and two".into()).into();
/// let answer = Delta::Text("Four.".into()).into();
/// let message = Streamed::from_pieces([thought, Piece::ReasoningEnd(signature), answer])?.message;
/// assert_eq!((message.parts().len(), &*message.text()), (2, "Four."));
/// # Ok::<_, tower_agent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Piece {
    /// A piece of the current part, or the start of the next one.
    Delta(Delta),
    /// A complete part, such as a tool call in one piece.
    Part(Part),
    /// The end of the current reasoning part, with its provider data, such as a signature. Further
    /// reasoning belongs to a new part. Without a current one, a reasoning part without text.
    ReasoningEnd(ProviderData),
    /// The end of the current text part, with its provider data, such as the id of its item.
    /// Further text belongs to a new part. Without a current one, a text part without text if there
    /// is data, and otherwise nothing.
    TextEnd(ProviderData),
    /// The tokens used so far, in place of what was told before: for an attempt that does not
    /// [finish](super::DeltaSender::unfinished). That of a complete response is in the response.
    Usage(Usage),
}

impl From<Delta> for Piece {
    fn from(delta: Delta) -> Self {
        Self::Delta(delta)
    }
}

impl From<Part> for Piece {
    fn from(part: Part) -> Self {
        Self::Part(part)
    }
}
