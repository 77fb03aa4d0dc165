//! Writes the conversation.
//!
//! Messages of one role become one message, so an array is open until another role follows: what is
//! written for a message begins by closing the array before it, if it must, and leaves its own
//! open. Nothing that was written for earlier messages changes.

use serde_json::Value;

use super::data::{at, breakpoint, invalid};
use super::{PROTOCOL, block};
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Message, Messages, Part, Role};
use tower_agent::model::ModelRequest;

/// A role in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    System,
    User,
    Assistant,
}

/// Blocks of one role.
struct Run<'a> {
    turn: Turn,
    parts: Vec<Placed<'a>>,
    /// The breakpoint of the message, which its last block gets.
    breakpoint: Option<&'a Value>,
}

/// A part, and the numbers of its message and in its message.
struct Placed<'a> {
    part: &'a Part,
    message: usize,
    number: usize,
}

/// Writes the messages as an array.
pub(super) fn write(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    let messages = request.messages();
    out.push(b'[');
    request.write_messages(PROTOCOL, out, |index, out| {
        let mut open = turn_before(messages, index)?;
        runs(messages, index)?.iter().try_for_each(|run| run.write(&mut open, out))
    })?;
    let mut open = turn_before(messages, messages.len())?;
    let parts = left_over(messages, messages.len());
    Run { turn: Turn::User, parts, breakpoint: None }.write(&mut open, out)?;
    if open.is_some() {
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    Ok(())
}

/// Returns the system messages before all others. They are sent elsewhere.
pub(super) fn leading(messages: &Messages) -> impl Iterator<Item = &Message> {
    messages.iter().take_while(|message| message.role() == Role::System)
}

/// Returns the parts of a system message that are sent, each with its number. Only text is
/// accepted.
pub(super) fn system_parts(
    index: usize,
    message: &Message,
) -> impl Iterator<Item = Result<(usize, &Part)>> {
    let parts = message.parts().iter().enumerate().filter(|(_, part)| block::is_sent(part));
    parts.map(move |(number, part)| match part {
        Part::Text(_) | Part::Provider(_) => Ok((number, part)),
        _ => {
            let error = invalid("a system message contains only text");
            Err(at(&format_args!("messages[{index}].parts[{number}]"), error))
        }
    })
}

impl Run<'_> {
    fn write(&self, open: &mut Option<Turn>, out: &mut Vec<u8>) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        match *open {
            Some(turn) if turn == self.turn => out.push(b','),
            before => {
                let begin = match self.turn {
                    Turn::System => br#"{"role":"system","content":["#.as_slice(),
                    Turn::User => br#"{"role":"user","content":["#,
                    Turn::Assistant if before.is_none() => {
                        return Err(invalid("the protocol requires a first message of the user"));
                    }
                    Turn::Assistant => br#"{"role":"assistant","content":["#,
                };
                if before.is_some() {
                    out.extend_from_slice(b"]},");
                }
                out.extend_from_slice(begin);
            }
        }
        *open = Some(self.turn);
        for (index, placed) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let is_last = index + 1 == self.parts.len();
            let Placed { part, message, number } = placed;
            let place = format_args!("messages[{message}].parts[{number}]");
            block::write(part, &place, self.breakpoint.filter(|_| is_last), out)?;
        }
        Ok(())
    }
}

/// Returns the role of the last blocks before a message.
fn turn_before(messages: &Messages, before: usize) -> Result<Option<Turn>> {
    for index in (0..before).rev() {
        if let Some(last) = runs(messages, index)?.pop() {
            return Ok(Some(last.turn));
        }
    }
    Ok(None)
}

/// Returns what is written for a message.
fn runs(messages: &Messages, index: usize) -> Result<Vec<Run<'_>>> {
    let message = &messages[index];
    let mut runs = Vec::new();
    let turn = match message.role() {
        Role::System => Turn::System,
        Role::User | Role::Tool => Turn::User,
        Role::Assistant => Turn::Assistant,
        _ => return Err(at(&format_args!("messages[{index}]"), unsupported("role"))),
    };
    let mut left_over = match is_of_results(message) {
        true => Vec::new(),
        false => left_over(messages, index),
    };
    let mut parts: Vec<_>;
    match turn {
        Turn::User => {
            // Nothing may stand between calls and their results.
            parts = placed(index, message, is_result).collect();
            if !is_of_results(message) {
                parts.append(&mut left_over);
                parts.extend(placed(index, message, |part| !is_result(part)));
            }
        }
        Turn::Assistant => parts = placed(index, message, |_| true).collect(),
        Turn::System if leading(messages).nth(index).is_some() => parts = Vec::new(),
        Turn::System => {
            let sent = system_parts(index, message);
            let placed = |(number, part)| Placed { part, message: index, number };
            parts = sent.map(|part| part.map(placed)).collect::<Result<_>>()?;
        }
    }
    runs.push(Run { turn: Turn::User, parts: left_over, breakpoint: None });
    runs.push(Run { turn, parts, breakpoint: breakpoint(message.provider()) });
    runs.retain(|run| !run.parts.is_empty());
    Ok(runs)
}

/// Returns the parts of the tool messages directly before a message that are not results. They
/// follow the last result.
fn left_over(messages: &Messages, before: usize) -> Vec<Placed<'_>> {
    let first = (0..before).rev().take_while(|&at| is_of_results(&messages[at])).last();
    let tools = (first.unwrap_or(before)..before).filter(|&at| messages[at].role() == Role::Tool);
    tools.flat_map(|at| placed(at, &messages[at], |part| !is_result(part))).collect()
}

/// Returns whether a message belongs to the results of a turn.
fn is_of_results(message: &Message) -> bool {
    let has_results_alone = || message.parts().iter().all(is_result) && !message.parts().is_empty();
    message.role() == Role::Tool || message.role() == Role::User && has_results_alone()
}

fn is_result(part: &Part) -> bool {
    matches!(part, Part::ToolResult(_))
}

fn placed(
    message: usize,
    of: &Message,
    takes: impl Fn(&Part) -> bool,
) -> impl Iterator<Item = Placed<'_>> {
    let parts = of.parts().iter().enumerate();
    parts
        .filter(move |(_, part)| block::is_sent(part) && takes(part))
        .map(move |(number, part)| Placed { part, message, number })
}
