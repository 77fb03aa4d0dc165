use super::delta::Delta;
use crate::message::{Part, ProviderData, Usage};

/// A piece that a provider adds to the message of its [attempt](super::Attempt).
///
/// The consumer and the mappers receive deltas only: those of a complete part are its text, its
/// reasoning or its tool call.
///
/// ```
/// use serde_json::json;
/// use tower_agent::message::{Part, ProviderData};
/// use tower_agent::stream::{Attempt, Delta, Piece};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let mut signature = ProviderData::default();
/// signature.set("anthropic", json!({ "signature": "EqQ" }));
///
/// let mut attempt = Attempt::unseen();
/// attempt.send(Delta::Reasoning("Two and two".into())).await?;
/// attempt.send(Piece::ReasoningEnd(signature)).await?;
/// attempt.send(Part::from_text("Four.")).await?;
///
/// let message = attempt.finish().await?.message;
/// assert!(matches!(&message.parts()[0], Part::Reasoning(part) if !part.provider.is_empty()));
/// assert_eq!(message.text(), "Four.");
/// # Ok(())
/// # }
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
