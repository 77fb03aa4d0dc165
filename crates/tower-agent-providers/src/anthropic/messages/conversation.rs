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
}

/// A part, and the numbers of its message and in its message.
struct Placed<'a> {
    part: &'a Part,
    message: usize,
    number: usize,
    /// The breakpoint of the message, if this is its last part.
    breakpoint: Option<&'a Value>,
}

/// Writes the messages as an array.
pub(super) fn write(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    let messages = request.messages();
    out.push(b'[');
    request.write_messages(PROTOCOL, out, |index, out| {
        let mut open = turn_before(messages, index);
        runs(messages, index)?.iter().try_for_each(|run| run.write(&mut open, out))
    })?;
    let mut open = turn_before(messages, messages.len());
    for run in waiting(messages, messages.len()) {
        run.write(&mut open, out)?;
    }
    if open.is_some() {
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    Ok(())
}

/// Writes the blocks of the system messages before all others, each with a comma.
pub(super) fn write_leading(messages: &Messages, out: &mut Vec<u8>) -> Result<()> {
    for (index, message) in leading(messages).enumerate() {
        for placed in all(index, message) {
            placed.write(Turn::System, out)?;
            out.push(b',');
        }
    }
    Ok(())
}

/// Returns the system messages before all others. They are sent apart.
pub(super) fn leading(messages: &Messages) -> impl Iterator<Item = &Message> {
    messages.iter().take_while(|message| message.role() == Role::System)
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
            placed.write(self.turn, out)?;
        }
        Ok(())
    }
}

impl Placed<'_> {
    fn write(&self, turn: Turn, out: &mut Vec<u8>) -> Result<()> {
        let Self { part, message, number, breakpoint } = self;
        let place = format_args!("messages[{message}].parts[{number}]");
        if turn == Turn::System && !matches!(part, Part::Text(_) | Part::Provider(_)) {
            return Err(at(&place, invalid("a system message contains only text")));
        }
        block::write(part, &place, *breakpoint, out)
    }

    fn is_result(&self) -> bool {
        matches!(self.part, Part::ToolResult(_))
    }
}

/// Returns the role of the last blocks before a message.
fn turn_before(messages: &Messages, before: usize) -> Option<Turn> {
    let mut before = (0..before).rev();
    before.find_map(|index| Some(runs(messages, index).ok()?.last()?.turn))
}

/// Returns what is written for a message.
fn runs(messages: &Messages, index: usize) -> Result<Vec<Run<'_>>> {
    let message = &messages[index];
    let all = || all(index, message);
    let mut runs = match message.role() {
        Role::System => Vec::new(),
        Role::Tool => {
            let parts = all().into_iter().filter(Placed::is_result).collect();
            vec![Run { turn: Turn::User, parts }]
        }
        Role::User if is_of_results(message) => vec![Run { turn: Turn::User, parts: all() }],
        Role::User => {
            // Nothing may stand between calls and their results.
            let (mut parts, rest): (Vec<_>, Vec<_>) =
                all().into_iter().partition(Placed::is_result);
            let [after_results, _] = waiting(messages, index);
            parts.extend(after_results.parts);
            parts.extend(rest);
            vec![Run { turn: Turn::User, parts }]
        }
        Role::Assistant => match all() {
            nothing if nothing.is_empty() => Vec::new(),
            parts => {
                let [after_results, system] = waiting(messages, index);
                vec![after_results, system, Run { turn: Turn::Assistant, parts }]
            }
        },
        _ => return Err(at(&format_args!("messages[{index}]"), unsupported("role"))),
    };
    runs.retain(|run| !run.parts.is_empty());
    Ok(runs)
}

/// Returns what stands before a message but is written after the results and the messages of the
/// user that follow it: other parts of tool messages, and system messages, which the protocol
/// accepts only directly before an answer.
fn waiting(messages: &Messages, before: usize) -> [Run<'_>; 2] {
    let mut after_results = Run { turn: Turn::User, parts: Vec::new() };
    let mut system = Run { turn: Turn::System, parts: Vec::new() };
    let mut is_user_since = false;
    for index in (0..before).rev() {
        let message = &messages[index];
        match message.role() {
            Role::System if leading(messages).nth(index).is_none() => {
                system.parts.extend(all(index, message).into_iter().rev());
            }
            Role::Tool if !is_user_since => {
                let rest = all(index, message).into_iter().filter(|placed| !placed.is_result());
                after_results.parts.extend(rest.rev());
            }
            Role::User => is_user_since |= !is_of_results(message),
            Role::Assistant if message.parts().iter().any(block::is_sent) => break,
            _ => {}
        }
    }
    after_results.parts.reverse();
    system.parts.reverse();
    [after_results, system]
}

/// Returns whether a message contains only results of a turn, or nothing.
fn is_of_results(message: &Message) -> bool {
    let mut parts = message.parts().iter().filter(|part| block::is_sent(part));
    parts.all(|part| matches!(part, Part::ToolResult(_)))
}

/// Returns all parts of a message that are sent.
fn all(index: usize, message: &Message) -> Vec<Placed<'_>> {
    let parts = message.parts().iter().enumerate().filter(|(_, part)| block::is_sent(part));
    let placed = |(number, part)| Placed { part, message: index, number, breakpoint: None };
    let mut all: Vec<_> = parts.map(placed).collect();
    if let Some(last) = all.last_mut() {
        last.breakpoint = breakpoint(message.provider());
    }
    all
}
