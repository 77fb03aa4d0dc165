//! The phases of work on a conversation.

use super::ordered_messages::OrderedMessages;

/// The phase of work on a conversation; see the table in the [module](super).
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Open,
    Writing(Writer),
    Detached(Writer),
    Answered,
    Over,
}

/// The loop that writes to a conversation.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The loop's own list, if it differs from the conversation in content.
    pub(super) own: Option<OrderedMessages>,
    /// The agent has given its response while its loop was writing.
    has_answered: bool,
}

impl Writer {
    pub(super) fn new(own: Option<OrderedMessages>) -> Self {
        Self {
            own,
            has_answered: false,
        }
    }
}

impl Phase {
    pub(super) fn writer(&self) -> Option<&Writer> {
        match self {
            Self::Writing(writer) | Self::Detached(writer) => Some(writer),
            Self::Idle | Self::Open | Self::Answered | Self::Over => None,
        }
    }

    pub(super) fn writer_mut(&mut self) -> Option<&mut Writer> {
        match self {
            Self::Writing(writer) | Self::Detached(writer) => Some(writer),
            Self::Idle | Self::Open | Self::Answered | Self::Over => None,
        }
    }

    /// Returns whether an agent or a loop works on the conversation.
    pub(super) fn is_in_use(&self) -> bool {
        match self {
            Self::Idle | Self::Over => false,
            Self::Open | Self::Answered | Self::Writing(_) | Self::Detached(_) => true,
        }
    }

    pub(super) fn write(&mut self, writer: Writer) {
        *self = match self {
            Self::Idle | Self::Over | Self::Detached(_) => Self::Detached(writer),
            Self::Open | Self::Answered | Self::Writing(_) => Self::Writing(writer),
        };
    }

    pub(super) fn end_writing(&mut self) {
        *self = match std::mem::take(self) {
            Self::Writing(writer) if writer.has_answered => Self::Answered,
            Self::Writing(_) => Self::Open,
            Self::Detached(writer) if writer.has_answered => Self::Over,
            Self::Detached(_) => Self::Idle,
            other => other,
        };
    }

    /// The agent that opened the conversation has given its response.
    pub(super) fn answer(&mut self) {
        match self {
            Self::Writing(writer) | Self::Detached(writer) => writer.has_answered = true,
            Self::Open | Self::Answered => *self = Self::Answered,
            Self::Idle | Self::Over => *self = Self::Over,
        }
    }

    /// The agent that opened the conversation has ended.
    pub(super) fn close(&mut self) {
        *self = match std::mem::take(self) {
            Self::Open => Self::Idle,
            Self::Answered => Self::Over,
            // Its loop was moved elsewhere, and goes on there.
            Self::Writing(writer) => Self::Detached(writer),
            other => other,
        };
    }
}
