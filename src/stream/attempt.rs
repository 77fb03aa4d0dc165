use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Chunk, Delta};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Part, Reasoning, Role, Text, ToolCall};

/// One attempt at a streamed answer: it passes deltas on and keeps the whole.
#[derive(Debug)]
pub struct Attempt {
    reader: Option<Reader>,
    parts: Vec<Building>,
}

#[derive(Debug)]
struct Reader {
    call: u32,
    attempt: u32,
    queue: mpsc::Sender<Chunk>,
}

/// The whole of a streamed answer. A [`ModelResponse`](crate::ModelResponse) is made from it, so
/// that what is answered is what was shown.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Streamed {
    /// What the deltas add up to.
    pub message: Message,
    /// Which attempt at its call this was, from 0. `None` if nobody watched.
    pub attempt: Option<u32>,
}

#[derive(Debug)]
enum Building {
    Text(String),
    Reasoning(String),
    ToolCall { index: usize, id: Arc<str>, name: Arc<str>, arguments: String },
}

impl Attempt {
    pub(super) fn new(call: u32, attempt: u32, queue: mpsc::Sender<Chunk>) -> Self {
        Self { reader: Some(Reader { call, attempt, queue }), parts: Vec::new() }
    }

    /// An attempt that nobody watches: it only keeps the whole.
    #[must_use]
    pub fn unseen() -> Self {
        Self { reader: None, parts: Vec::new() }
    }

    /// Passes a delta on, waiting while the queue is full.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](ErrorKind::Cancelled) when the reader is gone, and
    /// [`Protocol`](ErrorKind::Protocol) for arguments of a call that has not begun.
    pub async fn send(&mut self, delta: Delta) -> Result<()> {
        self.keep(&delta)?;
        let Some(Reader { call, attempt, queue }) = &self.reader else { return Ok(()) };
        let chunk = Chunk { call: *call, attempt: *attempt, delta };
        let gone = |_| Error::new(ErrorKind::Cancelled, "the reader of the stream went away");
        queue.send(chunk).await.map_err(gone)
    }

    /// Ends the attempt and returns the whole, which the response must be made from.
    ///
    /// # Errors
    ///
    /// None today; a later callback on the stream may refuse the message.
    #[expect(clippy::unused_async, reason = "flushing what a callback held back will wait")]
    pub async fn finish(self) -> Result<Streamed> {
        let message = Message::new(Role::Assistant, self.parts.into_iter().map(Part::from));
        Ok(Streamed { message, attempt: self.reader.map(|reader| reader.attempt) })
    }

    fn keep(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Text(more) => match self.parts.last_mut() {
                Some(Building::Text(text)) => text.push_str(more),
                _ => self.parts.push(Building::Text(more.clone())),
            },
            Delta::Reasoning(more) => match self.parts.last_mut() {
                Some(Building::Reasoning(text)) => text.push_str(more),
                _ => self.parts.push(Building::Reasoning(more.clone())),
            },
            Delta::ToolCall { index, id, name } => self.parts.push(Building::ToolCall {
                index: *index,
                id: id.clone(),
                name: name.clone(),
                arguments: String::new(),
            }),
            Delta::Arguments { index, json } => self.arguments(*index)?.push_str(json),
        }
        Ok(())
    }

    fn arguments(&mut self, wanted: usize) -> Result<&mut String> {
        let open = self.parts.iter_mut().find_map(|part| match part {
            Building::ToolCall { index, arguments, .. } if *index == wanted => Some(arguments),
            _ => None,
        });
        open.ok_or_else(|| {
            let message = format!("arguments for tool call {wanted}, which has not begun");
            Error::new(ErrorKind::Protocol, message)
        })
    }
}

impl From<Building> for Part {
    fn from(part: Building) -> Self {
        match part {
            Building::Text(text) => Self::Text(Text { text, ..Text::default() }),
            Building::Reasoning(text) => {
                Self::Reasoning(Reasoning { text, ..Reasoning::default() })
            }
            Building::ToolCall { id, name, arguments, .. } => {
                Self::ToolCall(ToolCall::from_text(id, name, &arguments))
            }
        }
    }
}
