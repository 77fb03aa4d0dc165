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
pub struct MessageId {
    /// The whole id, or the part of it that is shared by the messages of a conversation.
    text: Arc<str>,
    /// A run mints an id for every message, so it formats them only where somebody reads them.
    minted: Option<Minted>,
}

/// The part of a minted id that differs between the messages of a conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Minted {
    number: u32,
    /// The attempt at a streamed response: each is a message of its own to the consumer.
    attempt: u16,
    /// How often the text was changed after it was shown.
    revision: u16,
    answer: Option<CallAnswer>,
}

/// A message that a tool call has brought.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CallAnswer {
    call: u32,
    /// 0 for the call's result, which comes first.
    number: u32,
}

impl MessageId {
    /// Creates the id of a conversation's message with this number.
    pub(crate) fn minted(conversation: &Arc<str>, number: u32) -> Self {
        let minted = Minted {
            number,
            attempt: 0,
            revision: 0,
            answer: None,
        };
        Self {
            text: conversation.clone(),
            minted: Some(minted),
        }
    }

    /// Returns the id of another attempt at this message. The first attempt, 0, has the same id.
    pub(crate) fn attempt(&self, attempt: u32) -> Self {
        if attempt == 0 {
            return self.clone();
        }
        match self.minted {
            Some(minted) => Self {
                text: self.text.clone(),
                minted: Some(Minted {
                    attempt: u16::try_from(attempt).unwrap_or(u16::MAX),
                    ..minted
                }),
            },
            None => shared(format_args!("{}.{attempt}", self.text)).into(),
        }
    }

    /// Returns the id of a message that this message's tool call has brought; `number` 0 is the
    /// result.
    pub(crate) fn answer(&self, call: usize, number: usize) -> Self {
        let answer = CallAnswer {
            call: u32::try_from(call).unwrap_or(u32::MAX),
            number: u32::try_from(number).unwrap_or(u32::MAX),
        };
        match self.minted {
            // The numbers have room for one call: an answer to an answer has its id as text.
            Some(minted) if minted.answer.is_none() => Self {
                text: self.text.clone(),
                minted: Some(Minted {
                    answer: Some(answer),
                    ..minted
                }),
            },
            _ => shared(format_args!("{self}{answer}")).into(),
        }
    }

    /// Returns the id as a string, without a copy if it is one already.
    #[must_use]
    pub fn to_shared(&self) -> Arc<str> {
        match self.minted {
            None => self.text.clone(),
            Some(_) => shared(format_args!("{self}")),
        }
    }

    /// Returns the id that a stream gives to the tool call at this place among those of the message.
    #[must_use]
    pub fn tool_call(&self, index: usize) -> Arc<str> {
        shared(format_args!("{self}-t{index}"))
    }

    /// Returns the id of the same message after its text was changed: a consumer that has read it
    /// cannot be told to forget a part of it.
    pub(crate) fn revised(&self) -> Self {
        match self.minted {
            Some(minted) => Self {
                text: self.text.clone(),
                minted: Some(Minted {
                    revision: minted.revision.saturating_add(1),
                    ..minted
                }),
            },
            None => shared(format_args!("{}r1", self.text)).into(),
        }
    }

    /// Returns the number of a minted id, also if it was read from JSON. All attempts at a message
    /// have the same one.
    pub(crate) fn number(&self) -> Option<u32> {
        if let Some(minted) = self.minted {
            return Some(minted.number);
        }
        // From the end: a run's id may be the caller's own, with anything in it.
        let (_, suffix) = self.text.rsplit_once("-m")?;
        let end = suffix.find(|character: char| !character.is_ascii_digit());
        suffix[..end.unwrap_or(suffix.len())].parse().ok()
    }
}

/// Returns a formatted text with one allocation: a `String` would be copied into the `Arc`.
fn shared(text: fmt::Arguments<'_>) -> Arc<str> {
    let mut buffer = Buffer {
        bytes: [0; 120],
        length: 0,
    };
    if fmt::write(&mut buffer, text).is_ok()
        && let Ok(text) = std::str::from_utf8(&buffer.bytes[..buffer.length])
    {
        return text.into();
    }
    // A client may choose longer ids than a run mints.
    text.to_string().into()
}

struct Buffer {
    bytes: [u8; 120],
    length: usize,
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl fmt::Display for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.number)?;
        if self.attempt > 0 {
            write!(f, ".{}", self.attempt)?;
        }
        if self.revision > 0 {
            write!(f, "r{}", self.revision)?;
        }
        match self.answer {
            Some(answer) => fmt::Display::fmt(&answer, f),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-t{}-result", self.call)?;
        if self.number > 0 {
            write!(f, "{}", self.number)?;
        }
        Ok(())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minted {
            Some(minted) => write!(f, "{}-{minted}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.to_shared())
    }
}

impl PartialEq for MessageId {
    fn eq(&self, other: &Self) -> bool {
        match (self.minted, other.minted) {
            // The number first: the rest is the same in most comparisons.
            (Some(one), Some(two)) => {
                one == two && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
            }
            (None, None) => self.text == other.text,
            // One of them was read from JSON, where it is a string.
            _ => self.to_shared() == other.to_shared(),
        }
    }
}

impl Eq for MessageId {}

impl PartialEq<str> for MessageId {
    fn eq(&self, other: &str) -> bool {
        match self.minted {
            None => *self.text == *other,
            Some(_) => *self.to_shared() == *other,
        }
    }
}

impl Hash for MessageId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the text, since a minted id equals the same id read from JSON.
        self.to_shared().hash(state);
    }
}

impl From<Arc<str>> for MessageId {
    fn from(text: Arc<str>) -> Self {
        Self { text, minted: None }
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
