use std::fmt;
use std::time::Duration;

use tower_agent::error::AnswerError;

/// The reason not to accept a client's input: which part, and why.
///
/// ```
/// use tower_agent_conversations::{InputPart, Refusal, RefusalKind};
///
/// let refusal = Refusal::new(RefusalKind::Invalid, InputPart::Message(2), "it is empty");
/// assert_eq!(refusal.to_string(), "it is empty");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The kind of reason, for programs.
    pub kind: RefusalKind,
    /// The part of the input that is not accepted.
    pub part: InputPart,
    /// The reason, for people.
    pub message: String,
    /// The time after which the same input may be accepted, if that is known.
    pub retry_after: Option<Duration>,
}

/// The kind of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The input contradicts itself, or an answer in it does not fit its question.
    Invalid,
    /// It contains data that only the server may set, or an answer that is for somebody else to
    /// give.
    Forbidden,
    /// It answers an interrupt that is not open.
    NotOpen,
    /// It answers an interrupt whose time is [over](tower_agent::Interrupt::with_expiry).
    Expired,
    /// Another run is active in the thread.
    Busy,
    /// The server has as many runs at once as it may.
    Overloaded,
    /// The thread could not be loaded or saved.
    Store,
}

impl RefusalKind {
    /// Returns a stable code for programs, such as `not_open`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::NotOpen => "not_open",
            Self::Expired => "expired",
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
            Self::Store => "store",
        }
    }
}

/// A part of a client's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputPart {
    /// The thread.
    Thread,
    /// The message at this index.
    Message(usize),
    /// The content of the message at this index.
    Content(usize),
    /// The call that the message at this index is the result of.
    Call(usize),
    /// All answers.
    Answers,
    /// The answer at this index.
    Answer(usize),
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(kind: RefusalKind, part: InputPart, message: impl Into<String>) -> Self {
        Self {
            kind,
            part,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Sets the time after which the same input may be accepted.
    #[must_use]
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// Creates the refusal of an answer that does not count for its
    /// [interrupt](tower_agent::Interrupt::check).
    #[must_use]
    pub fn unfit(part: InputPart, error: &AnswerError) -> Self {
        let kind = match error {
            AnswerError::Late => RefusalKind::Expired,
            AnswerError::Misfit(_) => RefusalKind::Invalid,
            _ => RefusalKind::Forbidden,
        };
        Self::new(kind, part, error.to_string())
    }

    pub(crate) fn forbidden(part: InputPart, message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Forbidden, part, message)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
