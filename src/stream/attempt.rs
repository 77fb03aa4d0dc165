use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Chunk, Delta};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Part, Reasoning, Role, Text, ToolCall};

/// One attempt at a streamed answer: it passes deltas on and keeps the whole.
#[derive(Debug)]
pub struct Attempt {
    call: u32,
    number: u32,
    queue: mpsc::Sender<Chunk>,
    parts: Vec<Building>,
}

#[derive(Debug)]
enum Building {
    Text(String),
    Reasoning(String),
    ToolCall { index: usize, id: Arc<str>, name: Arc<str>, arguments: String },
}

impl Attempt {
    pub(super) fn new(call: u32, number: u32, queue: mpsc::Sender<Chunk>) -> Self {
        Self { call, number, queue, parts: Vec::new() }
    }

    /// Which attempt at answering its call this is, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Passes a delta on, waiting while the queue is full.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](ErrorKind::Cancelled) when the reader is gone, and
    /// [`Protocol`](ErrorKind::Protocol) for arguments of a call that has not begun.
    pub async fn send(&mut self, delta: Delta) -> Result<()> {
        self.keep(&delta)?;
        let chunk = Chunk { call: self.call, attempt: self.number, delta };
        self.queue
            .send(chunk)
            .await
            .map_err(|_| Error::new(ErrorKind::Cancelled, "the reader of the stream went away"))
    }

    /// Ends the attempt and returns the whole message, which the response must carry.
    ///
    /// # Errors
    ///
    /// None today; a later callback on the stream may refuse the message.
    #[expect(clippy::unused_async, reason = "flushing what a callback held back will wait")]
    pub async fn finish(self) -> Result<Message> {
        Ok(Message::new(Role::Assistant, self.parts.into_iter().map(Part::from)))
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
