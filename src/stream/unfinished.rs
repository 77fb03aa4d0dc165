use crate::message::Usage;

/// The output received of an [`Attempt`](super::Attempt) that was dropped before it finished: its
/// connection broke, a time limit passed or the call was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The [usage](super::Piece::Usage) that the provider had told by then; zero if it tells none
    /// before the end.
    pub usage: Usage,
    /// The length of the text, the reasoning and the arguments, in bytes.
    pub text_len: usize,
}
