//! Estimates of tokens, for what no provider has counted.

use tower_agent::message::{Message, Part};
use tower_agent::model::ModelRequest;

/// Estimates the tokens of a prompt.
pub(crate) fn prompt_tokens(request: &ModelRequest) -> u64 {
    let instructions = request.instructions().map_or(0, str::len);
    let parts = request.messages().iter().flat_map(Message::parts);
    tokens(instructions + parts.map(Part::text_len).sum::<usize>())
}

/// Estimates the tokens of a text of this length.
pub(crate) fn tokens(text_len: usize) -> u64 {
    (text_len as u64).div_ceil(4)
}
