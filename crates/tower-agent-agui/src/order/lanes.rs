use std::sync::Arc;

use super::owners::Owner;
use crate::wire::{Event, EventKind};

/// The open entities that chunks have started. Each agent has at most one.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) owner: Owner,
    pub(super) stream: Stream,
    pub(super) id: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Text,
    ToolCall,
    Reasoning,
}

/// Returns the kind of a chunk, if the event is one.
pub(super) fn stream(event: &Event) -> Option<Stream> {
    match event.kind {
        EventKind::TextMessageChunk { .. } => Some(Stream::Text),
        EventKind::ToolCallChunk { .. } => Some(Stream::ToolCall),
        EventKind::ReasoningMessageChunk { .. } => Some(Stream::Reasoning),
        _ => None,
    }
}
