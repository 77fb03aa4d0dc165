use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a message, unique in its conversation. Cloning is O(1).
///
/// The run that adds a message gives it an id, unless it has one: a message of a client keeps the
/// id that the client has chosen. The id stays the same wherever the message is kept: in
/// checkpoints, sessions, journals and recordings, and in the events of a stream. A run that is
/// made again with the same id gives its messages the same ids.
///
/// It is no part of the message's content: two messages with different ids can be equal, and no
/// provider receives it.
///
/// ```
/// use tower_agent::Message;
/// use tower_agent::message::MessageId;
///
/// let message = Message::user("Hello").with_id("m1");
/// assert_eq!(message.id(), Some(&MessageId::from("m1")));
/// assert_eq!(message, Message::user("Hello"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct MessageId {
    /// The whole id, or the part of it that is shared by the messages of a conversation.
    text: Arc<str>,
    suffix: Suffix,
}

/// The place of a message in its conversation, as the [id](MessageId::place) says that a run has
/// given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessagePlace<'a> {
    /// The conversation: the beginning of the ids that its runs give.
    pub conversation: &'a str,
    /// The number of the message there, or of the message with the call that has brought it.
    pub number: u32,
    /// The place of that call among the calls of its message, if a call has brought this message.
    pub call: Option<usize>,
}

/// The part of a message that an id names, behind the id of the message: in events and in
/// transcripts. Only this prints and reads them.
///
/// ```
/// use tower_agent::message::{IdPart, MessageId};
///
/// let result = IdPart::Result { call: 1, number: 0 };
/// let id = MessageId::from("run-m3").part(result);
/// assert_eq!(IdPart::split(&id.to_string()), Some(("run-m3", result)));
/// assert_eq!(IdPart::split("page-1"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdPart {
    /// The tool call at this place among those of the message.
    Call(usize),
    /// A message that this tool call has brought. Number 0 is its result.
    Result {
        /// The place of the call.
        call: usize,
        /// The number of the message among those of the call.
        number: usize,
    },
    /// The piece of the message's reasoning with this number, as events have it.
    Reasoning(u32),
    /// The message that asks for a repair of this one.
    Repair,
    /// The message that shows this one to the model of another agent.
    Quote,
    /// A message that a callback, a layer or a function of the program has added to the request or
    /// the response of an agent. The id before it is the one that the run would have given
    /// otherwise.
    Added,
    /// A task that a team has made of the message, or the message that the program has made as one.
    Task {
        /// The number of the team's conversation.
        team: u32,
        /// The number of the task.
        number: usize,
    },
    /// Another attempt at the message of a run. The first one has the id of the message.
    Attempt(u32),
    /// The message of a run after its text was changed.
    Revision(u32),
}

impl IdPart {
    /// Reads the last part of an id, and the id that it is a part of. `None` if the id is that of a
    /// whole message.
    #[must_use]
    pub fn split(id: &str) -> Option<(&str, Self)> {
        let (message, last) = id.rsplit_once('-')?;
        let part = match last {
            "repair" => Self::Repair,
            "added" => Self::Added,
            "quote" => Self::Quote,
            _ => {
                if let Some(number) = last.strip_prefix("result") {
                    return Self::split_result(message, number);
                } else if let Some(numbers) = last.strip_prefix("task") {
                    let (team, number) = numbers.split_once('.')?;
                    let team = digits(team)?;
                    let number = digits(number)?;
                    Self::Task { team, number }
                } else if let Some(index) = last.strip_prefix('t') {
                    Self::Call(digits(index)?)
                } else if let Some(number) = last.strip_prefix('r') {
                    Self::Reasoning(digits(number)?)
                } else {
                    return Self::split_version(id);
                }
            }
        };
        Some((message, part))
    }

    fn split_result<'a>(call: &'a str, number: &str) -> Option<(&'a str, Self)> {
        let (message, call) = call.rsplit_once("-t")?;
        let call = digits(call)?;
        let number = match number {
            "" => 0,
            number => digits(number)?,
        };
        Some((message, Self::Result { call, number }))
    }

    /// Reads an attempt or a revision. Only a run makes them, so the rest is the id of a run's
    /// message: `a.2` is what an application may have chosen.
    fn split_version(id: &str) -> Option<(&str, Self)> {
        let (_, suffix) = id.rsplit_once("-m")?;
        let at = suffix.rfind(['.', 'r'])?;
        let rest = &id[..id.len() - suffix.len() + at];
        let number = digits(&suffix[at + 1..])?;
        let part = if suffix[at..].starts_with('.') {
            Self::Attempt(number)
        } else {
            Self::Revision(number)
        };
        let is_of_run =
            digits::<u32>(&suffix[..at]).is_some() || Self::split_version(rest).is_some();
        is_of_run.then_some((rest, part))
    }
}

/// Reads a number that is nothing but digits.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| are_digits)
}

impl fmt::Display for IdPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(index) => write!(f, "-t{index}"),
            Self::Result { call, number: 0 } => write!(f, "-t{call}-result"),
            Self::Result { call, number } => write!(f, "-t{call}-result{number}"),
            Self::Reasoning(number) => write!(f, "-r{number}"),
            Self::Repair => f.write_str("-repair"),
            Self::Added => f.write_str("-added"),
            Self::Quote => f.write_str("-quote"),
            Self::Task { team, number } => write!(f, "-task{team}.{number}"),
            Self::Attempt(attempt) => write!(f, ".{attempt}"),
            Self::Revision(revision) => write!(f, "r{revision}"),
        }
    }
}

impl<'a> MessagePlace<'a> {
    fn read(id: &'a str) -> Option<Self> {
        let (mut message, call) = match IdPart::split(id) {
            Some((message, IdPart::Result { call, .. })) => (message, Some(call)),
            _ => (id, None),
        };
        while let Some((rest, IdPart::Attempt(_) | IdPart::Revision(_))) = IdPart::split(message) {
            message = rest;
        }
        let (conversation, number) = message.rsplit_once("-m")?;
        Some(Self {
            conversation,
            number: digits(number)?,
            call,
        })
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// The end of an id that a run mints. It mints one for every message, so it formats them only where
/// they are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    /// The id is a whole text.
    None,
    /// The message's number in the conversation.
    Message(u32),
    /// The message is the result of this tool call of the message with the number.
    Result { message: u32, call: u16 },
}

impl MessageId {
    pub(crate) fn minted(conversation: &Arc<str>, number: u32) -> Self {
        Self {
            text: conversation.clone(),
            suffix: Suffix::Message(number),
        }
    }

    /// Returns the id of another attempt at this message. The first attempt, 0, has the same id.
    pub(crate) fn attempt(&self, attempt: u32) -> Self {
        if attempt == 0 {
            return self.clone();
        }
        self.part(IdPart::Attempt(attempt))
    }

    /// Returns the id of a part of this message.
    pub fn part(&self, part: IdPart) -> Self {
        // The result of a call is what every call has: its id is not formatted before it is read.
        if let IdPart::Result { call, number: 0 } = part
            && let Suffix::Message(message) = self.suffix
            && let Ok(call) = u16::try_from(call)
        {
            return Self {
                text: self.text.clone(),
                suffix: Suffix::Result { message, call },
            };
        }
        format!("{self}{part}").into()
    }

    /// Returns the id as a string, without a copy if it is one already.
    #[must_use]
    pub fn to_shared(&self) -> Arc<str> {
        match self.suffix {
            Suffix::None => self.text.clone(),
            _ => self.written().into(),
        }
    }

    /// Returns the id that a stream gives to the tool call at this place among those of the
    /// message.
    #[must_use]
    pub fn tool_call(&self, index: usize) -> Arc<str> {
        let mut text = self.written();
        text.push_str("-t");
        push_number(&mut text, index);
        text.into()
    }

    /// Returns the id of the same message after its text was changed: a consumer that has read it
    /// cannot be told to forget a part of it.
    pub(crate) fn revised(&self) -> Self {
        self.part(IdPart::Revision(1))
    }

    /// Returns the place of the message in its conversation, also if the id was read from JSON. All
    /// attempts at a message, and revisions of it, have the same one. `None` if an application has
    /// chosen the id, or for a message that a run has made of another, such as the task of a team.
    ///
    /// ```
    /// use tower_agent::message::MessageId;
    ///
    /// let id = MessageId::from("run-m3-t1-result");
    /// let place = id.place().unwrap();
    /// assert_eq!((place.conversation, place.number, place.call), ("run", 3, Some(1)));
    /// assert!(MessageId::from("page-1").place().is_none());
    /// ```
    #[must_use]
    pub fn place(&self) -> Option<MessagePlace<'_>> {
        let (number, call) = match self.suffix {
            Suffix::None => return MessagePlace::read(&self.text),
            Suffix::Message(number) => (number, None),
            Suffix::Result { message, call } => (message, Some(call.into())),
        };
        Some(MessagePlace {
            conversation: &self.text,
            number,
            call,
        })
    }

    /// Returns the number of a minted id, also if it was read from JSON. All attempts at a message
    /// have the same one.
    pub(crate) fn number(&self) -> Option<u32> {
        match self.suffix {
            Suffix::None => {
                // From the end: a run's id may be the caller's own, with anything in it.
                let (_, suffix) = self.text.rsplit_once("-m")?;
                leading_number(suffix)
            }
            Suffix::Message(number)
            | Suffix::Result {
                message: number, ..
            } => Some(number),
        }
    }

    /// Returns the number of the id in this conversation, if it is of a message there or of a part
    /// of one.
    pub(crate) fn number_in(&self, conversation: &str) -> Option<u32> {
        let end = self.text.strip_prefix(conversation)?;
        match self.suffix {
            Suffix::None => leading_number(end.strip_prefix("-m")?),
            _ if end.is_empty() => self.number(),
            _ => None,
        }
    }

    fn written(&self) -> String {
        // With room for the suffix, and for that of a call.
        let mut text = String::with_capacity(self.text.len() + 40);
        text.push_str(&self.text);
        self.suffix.push_to(&mut text);
        text
    }
}

impl Suffix {
    fn push_to(self, text: &mut String) {
        match self {
            Self::None => {}
            Self::Message(number) => {
                text.push_str("-m");
                push_number(text, number);
            }
            Self::Result { message, call } => {
                Self::Message(message).push_to(text);
                text.push_str("-t");
                push_number(text, call);
                text.push_str("-result");
            }
        }
    }
}

/// Appends a number. Ids are written for each call that is told of, and `fmt` takes several times
/// as long.
pub(crate) fn push_number(text: &mut String, number: impl itoa::Integer) {
    text.push_str(itoa::Buffer::new().format(number));
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.written(), f)
    }
}

impl PartialEq for MessageId {
    fn eq(&self, other: &Self) -> bool {
        match (self.suffix, other.suffix) {
            (_, Suffix::None) => *self == *other.text,
            // One of them was read from JSON, where it is a string.
            (Suffix::None, _) => *other == *self.text,
            (own, suffix) => own == suffix && self.text == other.text,
        }
    }
}

impl PartialEq<str> for MessageId {
    fn eq(&self, other: &str) -> bool {
        match self.suffix {
            Suffix::None => *self.text == *other,
            // The part that is shared first: it is at hand, and the other has to be written.
            _ => other.starts_with(&*self.text) && *self.written() == *other,
        }
    }
}

impl Eq for MessageId {}

impl Hash for MessageId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the text, since a minted id equals the same id read from JSON.
        self.written().hash(state);
    }
}

impl From<Arc<str>> for MessageId {
    fn from(text: Arc<str>) -> Self {
        Self {
            text,
            suffix: Suffix::None,
        }
    }
}

impl From<&str> for MessageId {
    fn from(text: &str) -> Self {
        Arc::<str>::from(text).into()
    }
}

impl From<String> for MessageId {
    fn from(text: String) -> Self {
        Arc::<str>::from(text).into()
    }
}

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Arc::<str>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_message_is_the_same_read_from_json() {
        let conversation = Arc::from("a-m1/b");
        let message = MessageId::minted(&conversation, 3);
        for (id, call) in [
            (message.clone(), None),
            (message.attempt(2), None),
            (message.attempt(2).revised().revised(), None),
            (message.part(IdPart::Result { call: 1, number: 0 }), Some(1)),
            (
                message
                    .attempt(300)
                    .part(IdPart::Result { call: 0, number: 4 }),
                Some(0),
            ),
        ] {
            let expected = MessagePlace {
                conversation: "a-m1/b",
                number: 3,
                call,
            };
            assert_eq!(id.place(), Some(expected), "{id}");
            let read = MessageId::from(id.to_string());
            assert_eq!(read.place(), Some(expected), "{id}");
        }
        for other in [
            message.part(IdPart::Repair),
            message.part(IdPart::Added),
            message.part(IdPart::Quote),
            message.part(IdPart::Task { team: 1, number: 0 }),
            "mine".into(),
            "my-m3x".into(),
            "a-m3-t1".into(),
            "a-m3-t1-resultx".into(),
            "a-m99999999999".into(),
        ] {
            assert_eq!(other.place(), None, "{other}");
        }
    }

    #[test]
    fn each_part_is_read_as_it_was_printed() {
        let parts = [
            IdPart::Call(3),
            IdPart::Result { call: 3, number: 0 },
            IdPart::Result {
                call: 0,
                number: 12,
            },
            IdPart::Reasoning(1),
            IdPart::Repair,
            IdPart::Added,
            IdPart::Quote,
            IdPart::Task {
                team: 12,
                number: 7,
            },
            IdPart::Attempt(2),
            IdPart::Revision(1),
        ];
        for message in ["run-m3", "a-m1/b-m0", "run-m3.2", "run-m3r1"] {
            for part in parts {
                let id = format!("{message}{part}");
                assert_eq!(IdPart::split(&id), Some((message, part)), "{id}");
                assert_eq!(
                    MessageId::from(message).part(part),
                    MessageId::from(id.as_str())
                );
            }
        }
        for whole in [
            "run-m3", "page-1", "a.2", "mine", "a-tx", "a-task1", "ar1", "a-t+1",
        ] {
            assert_eq!(IdPart::split(whole), None, "{whole}");
        }
    }

    #[test]
    fn an_id_that_does_not_fit_is_the_same_text_as_one_that_does() {
        let conversation = Arc::from("run");
        let first = MessageId::minted(&conversation, 0);
        for number in [0, 7, u32::MAX - 1, u32::MAX] {
            let id = MessageId::minted(&conversation, number);
            assert_eq!(id, MessageId::from(format!("run-m{number}")));
            assert_eq!(id.number(), Some(number));
        }
        for attempt in [1, 255, 256, u32::MAX] {
            let id = first.attempt(attempt);
            assert_eq!(id, MessageId::from(format!("run-m0.{attempt}")));
            assert_eq!(id.number(), Some(0));
        }
        for call in [0, 65_534, 65_535, 1 << 20] {
            let result = first.part(IdPart::Result { call, number: 0 });
            assert_eq!(result, MessageId::from(format!("run-m0-t{call}-result")));
            let other = MessageId::from(format!("run-m0-t{call}-result3"));
            assert_eq!(first.part(IdPart::Result { call, number: 3 }), other);
        }
        let mut ids = vec![first];
        for revision in 0..300 {
            let next = ids[revision].revised();
            assert!(!ids.contains(&next), "{next}");
            ids.push(next);
        }
    }
}
