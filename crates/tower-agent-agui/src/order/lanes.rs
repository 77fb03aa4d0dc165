use std::sync::Arc;

use super::owners::Owner;
use crate::wire::EventKind;

/// An open entity that a chunk has started. Each agent has at most one.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) owner: Owner,
    pub(super) stream: Stream,
    pub(super) id: Arc<str>,
}

/// A kind of entity that chunks can start and continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Text,
    ToolCall,
    Reasoning,
}

impl Stream {
    /// Returns the kind of entity that the event starts or continues, if it is a chunk.
    pub(super) fn of_chunk(event: &EventKind) -> Option<Self> {
        match event {
            EventKind::TextMessageChunk { .. } => Some(Self::Text),
            EventKind::ToolCallChunk { .. } => Some(Self::ToolCall),
            EventKind::ReasoningMessageChunk { .. } => Some(Self::Reasoning),
            _ => None,
        }
    }
}
