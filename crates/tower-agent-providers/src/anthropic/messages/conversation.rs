//! Writes the conversation.
//!
//! Messages of one role become one message, so an array is open until another role follows: what is
//! written for a message begins by closing the array before it, if it must, and leaves its own
//! open. Nothing that was written for earlier messages changes.

use std::ops::Range;

use super::block;
use super::data::{at, breakpoint, invalid};
use super::provider::{CALL_IDS, PROTOCOL};
use crate::json::Items;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Message, Messages, Part, Role};
use tower_agent::model::ModelRequest;

/// Writes the messages as an array.
pub(super) fn write(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    let messages = request.messages();
    out.push(b'[');
    request.write_messages(PROTOCOL, out, |index, out| {
        Writer {
            messages,
            open: turn_before(messages, index),
            out,
        }
        .message(index)
    })?;
    let mut writer = Writer {
        messages,
        open: turn_before(messages, messages.len()),
        out,
    };
    writer.waiting(messages.len())?;
    if writer.open.is_some() {
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    Ok(())
}

/// Writes the blocks of the system messages before all others.
pub(super) fn write_leading(messages: &Messages, items: &mut Items<'_>) -> Result<()> {
    for (index, message) in leading(messages).enumerate() {
        for (number, sent) in message.parts().iter().enumerate() {
            if block::is_sent(sent) {
                items.item_with(|out| part(messages, TurnRole::System, index, number, out))?;
            }
        }
    }
    Ok(())
}

/// Returns the system messages before all others. They are sent apart.
pub(super) fn leading(messages: &Messages) -> impl Iterator<Item = &Message> {
    messages
        .iter()
        .take_while(|message| message.role() == Role::System)
}

/// A role in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnRole {
    System,
    User,
    Assistant,
}

struct Writer<'a> {
    messages: &'a Messages,
    /// The role whose array is open.
    open: Option<TurnRole>,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    /// Writes what a message adds.
    fn message(&mut self, index: usize) -> Result<()> {
        let message = &self.messages[index];
        match message.role() {
            // It waits.
            Role::System => Ok(()),
            Role::Tool => self.parts(TurnRole::User, index, is_result),
            Role::User if is_of_results(message) => self.parts(TurnRole::User, index, is_result),
            Role::User => {
                // Nothing may stand between calls and their results.
                self.parts(TurnRole::User, index, is_result)?;
                self.after_results(index)?;
                self.parts(TurnRole::User, index, |part| !is_result(part))
            }
            Role::Assistant if is_blank(message) => Ok(()),
            Role::Assistant => {
                self.waiting(index)?;
                self.parts(TurnRole::Assistant, index, |_| true)
            }
            _ => Err(at(&format_args!("messages[{index}]"), unsupported("role"))),
        }
    }

    /// Writes what stands before a message but follows the results and the messages of the user:
    /// other parts of tool messages, and system messages, which the protocol accepts only directly
    /// before an answer.
    fn waiting(&mut self, before: usize) -> Result<()> {
        self.after_results(before)?;
        let messages = self.messages;
        for index in since(messages, before, is_answer) {
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
        for index in since(messages, before, ends_results) {
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
            if block::is_sent(candidate) && takes(candidate) {
                self.separate(turn)?;
                part(self.messages, turn, index, number, self.out)?;
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
                return Err(invalid("the protocol requires a first message of the user"));
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

/// Writes a part as a block.
fn part(
    messages: &Messages,
    turn: TurnRole,
    index: usize,
    number: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let message = &messages[index];
    let part = &message.parts()[number];
    let path = format_args!("messages[{index}].parts[{number}]");
    if turn == TurnRole::System && !matches!(part, Part::Text(_) | Part::Provider(_)) {
        return Err(at(&path, invalid("a system message contains only text")));
    }
    // The breakpoint of a message covers all of it, so it goes to its last block.
    let breakpoint = breakpoint(message.provider())
        .filter(|_| !message.parts()[number + 1..].iter().any(block::is_sent));
    match part {
        Part::ToolResult(result) => {
            let id = CALL_IDS.of_result(result, messages, index);
            block::tool_result(result, &id, &path, breakpoint, out)
        }
        part => block::write(part, &path, breakpoint, out),
    }
}

/// Returns the role of the last block before a message.
fn turn_before(messages: &Messages, before: usize) -> Option<TurnRole> {
    (0..before).rev().find_map(|index| {
        let message = &messages[index];
        match message.role() {
            Role::User if !is_blank(message) => Some(TurnRole::User),
            Role::Tool if message.parts().iter().any(is_result) => Some(TurnRole::User),
            Role::Assistant if !is_blank(message) => Some(TurnRole::Assistant),
            _ => None,
        }
    })
}

/// Returns the messages before one, back to the last that is an `end`.
fn since(messages: &Messages, before: usize, ends: impl Fn(&Message) -> bool) -> Range<usize> {
    let end = (0..before).rev().find(|&index| ends(&messages[index]));
    end.map_or(0, |end| end + 1)..before
}

fn is_answer(message: &Message) -> bool {
    message.role() == Role::Assistant && !is_blank(message)
}

/// Returns whether a message ends the results of a turn: no other can follow it in the same turn.
fn ends_results(message: &Message) -> bool {
    is_answer(message) || message.role() == Role::User && !is_of_results(message)
}

fn is_blank(message: &Message) -> bool {
    !message.parts().iter().any(block::is_sent)
}

/// Returns whether a message contains only results of a turn, or nothing.
fn is_of_results(message: &Message) -> bool {
    let mut parts = message.parts().iter().filter(|part| block::is_sent(part));
    parts.all(is_result)
}

fn is_result(part: &Part) -> bool {
    matches!(part, Part::ToolResult(_))
}
