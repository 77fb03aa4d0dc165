//! Messages as a client has them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::message::Message;

/// The form in which a client has a message of the transcript; returned by
/// [`ClientView::shown`](crate::ClientView::shown).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ShownForm {
    /// The client does not have it. No other device of the user receives it.
    #[default]
    Hidden,
    /// The client has it as it is in the transcript.
    Whole,
    /// The client has these messages in its place, in the form of its protocol.
    Other(Vec<Value>),
}

impl ShownForm {
    pub(crate) fn is_hidden(&self) -> bool {
        *self == Self::Hidden
    }
}

/// A message of a thread as its client has it; part of a
/// [`ShownThread`](crate::ShownThread).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ShownMessage {
    /// A message of the transcript.
    Whole {
        /// The client's id of the message.
        id: Arc<str>,
        /// The message.
        message: Message,
        /// The client's id of the call, if the message is the result of one.
        call: Option<Arc<str>>,
    },
    /// Messages in the form of the client's protocol.
    Other(Vec<Value>),
}

/// A message that a client has missed; part of [`Begun`](crate::Begun).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MissedMessage {
    /// The number of the client's messages that precede it.
    pub after: usize,
    /// The message.
    pub message: ShownMessage,
}
