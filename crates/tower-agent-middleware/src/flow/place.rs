//! The place of a message in its conversation, by its id.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tower_agent::message::{IdPart, MessageId, MessagePlace};

/// A message as labels know it: the same for all attempts at a response and for a response whose
/// text a callback has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TurnId<'a> {
    /// A run has given it its id.
    OfRun {
        conversation: Cow<'a, str>,
        number: u32,
    },
    /// An application has chosen its id.
    Other(Arc<str>),
}

impl<'a> TurnId<'a> {
    /// Reads the id of a message of the model.
    pub(super) fn of(id: &'a MessageId) -> Self {
        match id.place() {
            Some(place) => place.into(),
            None => Self::Other(id.to_shared()),
        }
    }

    /// Returns the number in the conversation, if a run has given it.
    pub(super) fn number(&self) -> Option<u32> {
        match self {
            Self::OfRun { number, .. } => Some(*number),
            Self::Other(_) => None,
        }
    }

    pub(super) fn into_owned(self) -> TurnId<'static> {
        match self {
            Self::OfRun {
                conversation,
                number,
            } => TurnId::OfRun {
                conversation: conversation.into_owned().into(),
                number,
            },
            Self::Other(id) => TurnId::Other(id),
        }
    }
}

impl<'a> From<MessagePlace<'a>> for TurnId<'a> {
    fn from(place: MessagePlace<'a>) -> Self {
        Self::OfRun {
            conversation: place.conversation.into(),
            number: place.number,
        }
    }
}

impl fmt::Display for TurnId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfRun {
                conversation,
                number,
            } => write!(f, "{conversation}-m{number}"),
            Self::Other(id) => f.write_str(id),
        }
    }
}

/// The place of a message in its conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A message of its own.
    Message(TurnId<'a>),
    /// A message that the run has made of this one: it asks for a repair of an answer, or shows
    /// it to another agent.
    Quote(TurnId<'a>),
    /// A message that a callback, a layer or a function of the program has written: it was added to
    /// what an agent is asked or has answered, or is a task of a team. It has the name of no other.
    Written(TurnId<'a>),
    /// One of the messages that a tool call has brought.
    Brought {
        /// The message with the call.
        by: TurnId<'a>,
        /// The place of the call there.
        call: usize,
    },
}

impl<'a> Place<'a> {
    /// Reads the id of a message.
    pub(super) fn of(id: &'a MessageId) -> Self {
        match id.place() {
            Some(place) => match place.call {
                Some(call) => Self::Brought {
                    by: place.into(),
                    call,
                },
                None => Self::Message(place.into()),
            },
            None => Self::of_other(id.to_shared()),
        }
    }

    /// Reads an id that no run has given as it is.
    fn of_other(id: Arc<str>) -> Self {
        let quoted = match IdPart::split(&id) {
            Some((by, IdPart::Result { call, .. })) => {
                return Self::Brought {
                    by: TurnId::Other(by.into()),
                    call,
                };
            }
            Some((quoted, IdPart::Repair | IdPart::Quote)) => MessageId::from(quoted),
            Some((_, IdPart::Added | IdPart::Task { .. })) => {
                return Self::Written(TurnId::Other(id));
            }
            _ => return Self::Message(TurnId::Other(id)),
        };
        match Place::of(&quoted) {
            Place::Message(quoted) | Place::Quote(quoted) => Self::Quote(quoted.into_owned()),
            Place::Written(quoted) => Self::Quote(quoted.into_owned()),
            Place::Brought { by, call } => Self::Brought {
                by: by.into_owned(),
                call,
            },
        }
    }
}

/// Returns the name by which a model can name a message, such as `m3`, or what the call at a place
/// in it has brought, such as `m3.1`. A message whose id the run has not given it has its id as its
/// name.
pub(crate) fn short_name(id: &MessageId) -> String {
    let named = match Place::of(id) {
        Place::Message(message) => message.number().map(|number| format!("m{number}")),
        Place::Brought { by, call } => by.number().map(|number| format!("m{number}.{call}")),
        Place::Quote(_) | Place::Written(_) => None,
    };
    named.unwrap_or_else(|| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_which_message_or_call_it_belongs_to() {
        fn of_run(number: u32) -> TurnId<'static> {
            TurnId::OfRun {
                conversation: "run".into(),
                number,
            }
        }
        fn other(id: &str) -> TurnId<'static> {
            TurnId::Other(id.into())
        }
        let brought = |by, call| Place::Brought { by, call };
        let written = |id| Place::Written(other(id));
        for (id, place) in [
            ("run-m3", Place::Message(of_run(3))),
            ("run-m3.2", Place::Message(of_run(3))),
            ("run-m3r1", Place::Message(of_run(3))),
            ("run-m3.2r1r1", Place::Message(of_run(3))),
            ("run-m3.2-t1-result", brought(of_run(3), 1)),
            ("run-m3-t1-result4", brought(of_run(3), 1)),
            ("run-m3.2-repair", Place::Quote(of_run(3))),
            ("run-m3-task12.0", written("run-m3-task12.0")),
            (
                "run-m3-t1-result-task7.12",
                written("run-m3-t1-result-task7.12"),
            ),
            ("run-m3-added", written("run-m3-added")),
            ("run-m3-added-repair", Place::Quote(other("run-m3-added"))),
            ("my-task", Place::Message(other("my-task"))),
            ("mine", Place::Message(other("mine"))),
            ("my-m3x", Place::Message(other("my-m3x"))),
            ("a-t1-result", brought(other("a"), 1)),
            ("a-repair", Place::Quote(other("a"))),
            ("a-result", Place::Message(other("a-result"))),
            ("a-t1-resultx", Place::Message(other("a-t1-resultx"))),
        ] {
            assert_eq!(Place::of(&id.into()), place, "{id}");
        }
        assert_eq!(of_run(3).to_string(), "run-m3");
        assert_eq!(of_run(3).number(), Some(3));
        for (id, name) in [
            ("run-m3.2", "m3"),
            ("run-m3-t1-result", "m3.1"),
            ("run-m3-repair", "run-m3-repair"),
            ("mine", "mine"),
        ] {
            assert_eq!(short_name(&id.into()), name);
        }
    }
}
