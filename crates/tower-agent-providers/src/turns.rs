//! Writes a conversation as turns that alternate between the user and the model.
//!
//! Messages of one role become one message, so an array is open until another role follows: what is
//! written for a message begins by closing the array before it, if it must, and leaves its own
//! open. Nothing that was written for earlier messages changes.

use std::marker::PhantomData;
use std::ops::Range;

use crate::protocol::unsupported;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Message, Messages, Part, Role};
use tower_agent::model::ModelRequest;

/// The blocks of a protocol, which stand in messages of the form `{"role": "user", "content": []}`.
pub(crate) trait Blocks {
    /// Identifies the format in which messages are cached.
    const PROTOCOL: &'static str;

    /// Set if a system message may stand after others. Otherwise all are sent apart, and not
    /// written here.
    const HAS_SYSTEM_TURNS: bool;

    /// Returns whether a part is sent.
    fn is_sent(part: &Part) -> bool;

    /// Writes a part as a block.
    fn write(place: Place<'_>, out: &mut Vec<u8>) -> Result<()>;
}

/// A part of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) messages: &'a Messages,
    pub(crate) turn: TurnRole,
    /// The message.
    pub(crate) index: usize,
    /// The part of the message.
    pub(crate) number: usize,
}

/// Writes the messages as an array. `last` is a block that ends the last message.
pub(crate) fn write<B: Blocks>(
    request: &ModelRequest,
    last: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let messages = request.messages();
    out.push(b'[');
    request.write_messages(B::PROTOCOL, out, |index, out| {
        Writer::<B>::new(messages, index, out).message(index)
    })?;
    let mut writer = Writer::<B>::new(messages, messages.len(), out);
    writer.waiting(messages.len())?;
    if writer.open.is_some() {
        if let Some(last) = last {
            out.push(b',');
            out.extend_from_slice(last.as_bytes());
        }
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    Ok(())
}

/// Returns the system messages before all others. They are sent apart.
pub(crate) fn leading(messages: &Messages) -> impl Iterator<Item = &Message> {
    messages
        .iter()
        .take_while(|message| message.role() == Role::System)
}

/// A role in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnRole {
    System,
    User,
    Assistant,
}

struct Writer<'a, B> {
    messages: &'a Messages,
    /// The role whose array is open.
    open: Option<TurnRole>,
    out: &'a mut Vec<u8>,
    blocks: PhantomData<B>,
}

impl<'a, B: Blocks> Writer<'a, B> {
    /// Creates the writer of what follows the messages before `index`.
    fn new(messages: &'a Messages, index: usize, out: &'a mut Vec<u8>) -> Self {
        Self {
            messages,
            open: turn_before::<B>(messages, index),
            out,
            blocks: PhantomData,
        }
    }

    /// Writes what a message adds.
    fn message(&mut self, index: usize) -> Result<()> {
        let message = &self.messages[index];
        match message.role() {
            // It waits.
            Role::System => Ok(()),
            Role::Tool => self.parts(TurnRole::User, index, is_result),
            Role::User if is_of_results::<B>(message) => {
                self.parts(TurnRole::User, index, is_result)
            }
            Role::User => {
                // Nothing may stand between calls and their results.
                self.parts(TurnRole::User, index, is_result)?;
                self.after_results(index)?;
                self.parts(TurnRole::User, index, |part| !is_result(part))
            }
            Role::Assistant if is_blank::<B>(message) => Ok(()),
            Role::Assistant => {
                self.waiting(index)?;
                self.parts(TurnRole::Assistant, index, |_| true)
            }
            _ => Err(at_message(index, &unsupported("role"))),
        }
    }

    /// Writes what stands before a message but follows the results and the messages of the user:
    /// other parts of tool messages, and system messages, which the protocol accepts only directly
    /// before an answer.
    fn waiting(&mut self, before: usize) -> Result<()> {
        self.after_results(before)?;
        if !B::HAS_SYSTEM_TURNS {
            return Ok(());
        }
        let messages = self.messages;
        for index in since(messages, before, is_answer::<B>) {
            // System messages before all others are sent apart.
            let is_system = messages[index].role() == Role::System;
            if is_system && leading(messages).nth(index).is_none() {
                self.parts(TurnRole::System, index, |_| true)?;
            }
        }
        Ok(())
    }

    /// Writes what tool messages directly before a message contain beside results.
    fn after_results(&mut self, before: usize) -> Result<()> {
        let messages = self.messages;
        for index in since(messages, before, ends_results::<B>) {
            if messages[index].role() == Role::Tool {
                self.parts(TurnRole::User, index, |part| !is_result(part))?;
            }
        }
        Ok(())
    }

    /// Writes some parts of a message.
    fn parts(&mut self, turn: TurnRole, index: usize, takes: impl Fn(&Part) -> bool) -> Result<()> {
        for (number, candidate) in self.messages[index].parts().iter().enumerate() {
            // Nothing is begun for a message without such parts: an empty array is rejected.
            if B::is_sent(candidate) && takes(candidate) {
                self.separate(turn)?;
                let place = Place {
                    messages: self.messages,
                    turn,
                    index,
                    number,
                };
                B::write(place, self.out)?;
            }
        }
        Ok(())
    }

    /// Writes what stands between the last block and the next one.
    fn separate(&mut self, turn: TurnRole) -> Result<()> {
        let before = self.open.replace(turn);
        if before == Some(turn) {
            self.out.push(b',');
            return Ok(());
        }
        let begin = match turn {
            TurnRole::System => br#"{"role":"system","content":["#.as_slice(),
            TurnRole::User => br#"{"role":"user","content":["#,
            // Said here, where it is known, rather than by the provider after the request.
            TurnRole::Assistant if before.is_none() => {
                let message = "the protocol requires a first message of the user";
                return Err(Error::new(ErrorKind::InvalidRequest, message));
            }
            TurnRole::Assistant => br#"{"role":"assistant","content":["#,
        };
        if before.is_some() {
            self.out.extend_from_slice(b"]},");
        }
        self.out.extend_from_slice(begin);
        Ok(())
    }
}

/// Returns an error that says in which message the problem is.
fn at_message(index: usize, error: &Error) -> Error {
    let message = format!("messages[{index}]: {}", error.message());
    error.clone().with_message(message)
}

/// Returns the role of the last block before a message.
fn turn_before<B: Blocks>(messages: &Messages, before: usize) -> Option<TurnRole> {
    (0..before).rev().find_map(|index| {
        let message = &messages[index];
        match message.role() {
            Role::User if !is_blank::<B>(message) => Some(TurnRole::User),
            Role::Tool if message.parts().iter().any(is_result) => Some(TurnRole::User),
            Role::Assistant if !is_blank::<B>(message) => Some(TurnRole::Assistant),
            _ => None,
        }
    })
}

/// Returns the messages before one, back to the last that is an `end`.
fn since(messages: &Messages, before: usize, ends: impl Fn(&Message) -> bool) -> Range<usize> {
    let end = (0..before).rev().find(|&index| ends(&messages[index]));
    end.map_or(0, |end| end + 1)..before
}

fn is_answer<B: Blocks>(message: &Message) -> bool {
    message.role() == Role::Assistant && !is_blank::<B>(message)
}

/// Returns whether a message ends the results of a turn: no other can follow it in the same turn.
fn ends_results<B: Blocks>(message: &Message) -> bool {
    is_answer::<B>(message) || message.role() == Role::User && !is_of_results::<B>(message)
}

fn is_blank<B: Blocks>(message: &Message) -> bool {
    !message.parts().iter().any(B::is_sent)
}

/// Returns whether a message contains only results of a turn, or nothing.
fn is_of_results<B: Blocks>(message: &Message) -> bool {
    let mut parts = message.parts().iter().filter(|part| B::is_sent(part));
    parts.all(is_result)
}

fn is_result(part: &Part) -> bool {
    matches!(part, Part::ToolResult(_))
}
