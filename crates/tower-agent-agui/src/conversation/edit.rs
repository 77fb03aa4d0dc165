//! Applies an event to one message, as a client does.
//!
//! The core assembles the model's own message from its deltas. This one follows the events that
//! were sent, which callbacks may have changed.

use serde_json::{Map, Value};

use crate::wire::{Content, Event, Message, MessageKind, TextRole};

/// Returns whether text can be added to the message.
pub(super) fn takes_text(message: &Message) -> bool {
    !matches!(message.kind, MessageKind::Activity { .. })
}

/// Creates an empty message of this role.
pub(super) fn empty(role: TextRole) -> MessageKind {
    let content = String::new();
    match role {
        TextRole::Developer => MessageKind::Developer { content },
        TextRole::System => MessageKind::System { content },
        TextRole::Assistant => MessageKind::Assistant {
            content: Some(content),
            tool_calls: Vec::new(),
        },
        TextRole::User => MessageKind::User {
            content: Content::Text(content),
        },
    }
}

/// Returns the text that pieces are added to, unless the message is an activity.
pub(super) fn streamed_text(message: &mut Message) -> Option<&mut String> {
    match &mut message.kind {
        MessageKind::Developer { content }
        | MessageKind::System { content }
        | MessageKind::Reasoning { content } => Some(content),
        MessageKind::Assistant { content, .. } => Some(content.get_or_insert_default()),
        MessageKind::User { content } | MessageKind::Tool { content, .. } => {
            if let Content::Parts(_) = content {
                // The client keeps no parts beside streamed text.
                *content = Content::Text(String::new());
            }
            match content {
                Content::Text(text) => Some(text),
                Content::Parts(_) => None,
            }
        }
        MessageKind::Activity { .. } => None,
    }
}

/// Merges the event's metadata, key by key.
pub(super) fn merge(metadata: &mut Option<Map<String, Value>>, event: &Event) {
    if let Some(more) = event.metadata() {
        let metadata = metadata.get_or_insert_default();
        for (key, value) in more {
            metadata.insert(key.clone(), value.clone());
        }
    }
}
