//! Tokens of messages, as they are estimated.

use tower_agent::message::{Message, Part};

use crate::estimate;

/// The tokens of an image, a document or audio, whose size in tokens is not known.
pub(super) const MEDIA_TOKENS: u64 = 1000;

/// The tokens that a message has beside its parts.
pub(super) const MESSAGE_TOKENS: u64 = 4;

/// Estimates the tokens of a message.
pub(super) fn estimated_tokens(message: &Message) -> u64 {
    let parts = message.parts();
    let text = parts.iter().map(Part::text_len).sum();
    MESSAGE_TOKENS + estimate::tokens(text) + MEDIA_TOKENS * media(parts)
}

/// Returns the number of images, documents and pieces of audio, also in results of tools.
pub(super) fn media(parts: &[Part]) -> u64 {
    let of_part = |part: &Part| match part {
        Part::Image(_) | Part::Audio(_) | Part::Document(_) => 1,
        Part::ToolResult(result) => media(&result.parts),
        _ => 0,
    };
    parts.iter().map(of_part).sum()
}
