use std::collections::HashSet;

use super::part::{is_sent, write_part, write_result, write_text};
use super::provider::{PROTOCOL, SIGNED_PROTOCOL};
use crate::json::write;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Message, Messages, Part, ProviderData, Role, ToolResult};
use tower_agent::model::ModelRequest;

/// Writes the conversation in the protocol's format. `is_signed` is set for models that require
/// signatures.
pub(super) fn contents(request: &ModelRequest, is_signed: bool, out: &mut Vec<u8>) -> Result<()> {
    let messages = request.messages();
    let protocol = if is_signed { SIGNED_PROTOCOL } else { PROTOCOL };
    // Each message writes only what follows the ones before it, so that its bytes can be cached:
    // the end of the last content is written by the next one.
    out.push(b'[');
    request.write_messages(protocol, out, |index, out| {
        message(messages, index, is_signed, out)
    })?;
    let Turn { open, waiting, .. } = Turn::before(messages, messages.len(), None);
    let mut contents = Contents { open, out };
    contents.user_parts(waiting)?;
    contents.end();
    Ok(())
}

/// The kind of parts in a content. The end of a content is written by what follows, since only that
/// decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    User,
    Model,
    /// Results only: the protocol requires as many parts as there were calls.
    Results,
}

struct Contents<'a> {
    /// The content that further parts can be added to.
    open: Option<Group>,
    out: &'a mut Vec<u8>,
}

impl Contents<'_> {
    fn part(
        &mut self,
        group: Group,
        write_part: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        match self.open.replace(group) {
            Some(open) if open == group => self.out.push(b','),
            open => {
                if open.is_some() {
                    self.out.extend_from_slice(b"]},");
                }
                let role = if group == Group::Model {
                    "model"
                } else {
                    "user"
                };
                self.out.extend_from_slice(b"{\"role\":");
                write(self.out, role)?;
                self.out.extend_from_slice(b",\"parts\":[");
            }
        }
        write_part(self.out)
    }

    fn user_parts<'a>(&mut self, all: impl IntoIterator<Item = UserPart<'a>>) -> Result<()> {
        for one in all {
            self.part(Group::User, |out| match one {
                UserPart::Source(of) => {
                    let text = format!("Shown by the tool `{}` (call {}):", of.name, of.call_id);
                    write_text(&text, &ProviderData::default(), out)
                }
                UserPart::Part(part) => write_part(part, false, out),
            })?;
        }
        Ok(())
    }

    fn end(self) {
        if self.open.is_some() {
            self.out.extend_from_slice(b"]}");
        }
        self.out.push(b']');
    }
}

fn message(messages: &Messages, index: usize, is_signed: bool, out: &mut Vec<u8>) -> Result<()> {
    let message = &messages[index];
    match message.role() {
        Role::Assistant if !has_output(message) => return Ok(()),
        // Sent elsewhere.
        Role::System => return Ok(()),
        Role::Assistant | Role::User | Role::Tool => {}
        _ => return Err(unsupported("role")),
    }
    let mut turn = Turn::before(messages, index, Some(message));
    let mut contents = Contents {
        open: turn.open,
        out,
    };
    for result in message.tool_results() {
        contents.part(Group::Results, |out| write_result(result, out))?;
    }
    let own = message.parts().iter().filter(|part| is_sent(part));
    if message.role() == Role::Assistant {
        // The model went on without the results, so that none will let these through.
        contents.user_parts(turn.waiting)?;
        let mut must_be_signed = is_signed;
        for part in own {
            contents.part(Group::Model, |out| write_part(part, must_be_signed, out))?;
            // Of parallel calls only the first is signed.
            must_be_signed &= !matches!(part, Part::ToolCall(_));
        }
        return Ok(());
    }
    // Nothing waits, so the message need not be sorted into what does and what does not.
    if turn.unanswered.is_empty() && turn.waiting.is_empty() {
        contents.user_parts(message.tool_results().flat_map(media_of))?;
        return contents.user_parts(own.map(UserPart::Part));
    }
    turn.add(message);
    contents.user_parts(turn.ready)
}

/// Returns whether a message of the model writes anything.
fn has_output(message: &Message) -> bool {
    message.role() == Role::Assistant && message.parts().iter().any(is_sent)
}

/// Returns the group of the last part of a message that is not the model's, if nothing waits.
fn last_group(message: &Message) -> Option<Group> {
    match message.role() {
        Role::User | Role::Tool if has_user_parts(message) => Some(Group::User),
        Role::User | Role::Tool => message.tool_results().next().map(|_| Group::Results),
        _ => None,
    }
}

/// Returns whether a message that is not the model's has anything besides results.
fn has_user_parts(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::ToolResult(result) => media_of(result).next().is_some(),
        part => is_sent(part),
    })
}

/// The messages since the last one of the model. Results must directly follow their calls, and
/// nothing may come between them: until every call has one, everything else waits.
struct Turn<'a> {
    /// The content that is still open.
    open: Option<Group>,
    /// The calls that have no result yet. Only found if something could wait for them.
    unanswered: HashSet<&'a str>,
    waiting: Vec<UserPart<'a>>,
    /// The parts that the last message lets through.
    ready: Vec<UserPart<'a>>,
}

/// A part of a user's content.
enum UserPart<'a> {
    /// The line that names the source of the following parts.
    Source(&'a ToolResult),
    Part(&'a Part),
}

impl<'a> Turn<'a> {
    /// Returns the turn before a message, which is the `next` one.
    fn before(messages: &'a Messages, index: usize, next: Option<&Message>) -> Self {
        let last = (0..index).rev().find(|&at| has_output(&messages[at]));
        let start = last.map_or(0, |last| last + 1);
        let added = messages.range(start).take(index - start);
        let mut turn = Self {
            open: last.map(|_| Group::Model),
            unanswered: HashSet::new(),
            waiting: Vec::new(),
            ready: Vec::new(),
        };
        let next = next.filter(|next| next.role() != Role::Assistant);
        // Looking for unanswered calls costs a search of the turn, and most messages only bring
        // results: nothing of theirs has to wait.
        if added.clone().chain(next).any(has_user_parts) {
            // Neighbouring messages of the model are one content.
            let output = (0..start)
                .rev()
                .map(|at| &messages[at])
                .take_while(|message| matches!(message.role(), Role::Assistant | Role::System));
            turn.unanswered = output
                .flat_map(Message::tool_calls)
                .map(|call| &*call.id)
                .collect();
        }
        if turn.unanswered.is_empty() {
            let group = (start..index)
                .rev()
                .find_map(|at| last_group(&messages[at]));
            turn.open = group.or(turn.open);
        } else {
            for message in added {
                turn.add(message);
            }
        }
        turn
    }

    /// Adds a message that is not the model's.
    fn add(&mut self, message: &'a Message) {
        self.ready.clear();
        if !matches!(message.role(), Role::User | Role::Tool) {
            return;
        }
        for result in message.tool_results() {
            self.unanswered.remove(&*result.call_id);
            self.open = Some(Group::Results);
            self.waiting.extend(media_of(result));
        }
        let own = message.parts().iter().filter(|part| is_sent(part));
        self.waiting.extend(own.map(UserPart::Part));
        if self.unanswered.is_empty() && !self.waiting.is_empty() {
            self.open = Some(Group::User);
            self.ready = std::mem::take(&mut self.waiting);
        }
    }
}

/// Returns the media of a result, after a line that names it.
fn media_of(result: &ToolResult) -> impl Iterator<Item = UserPart<'_>> {
    // Texts are in the result itself, which has no place for anything else.
    let mut media = result
        .parts
        .iter()
        .filter(|part| !matches!(part, Part::Text(_)) && is_sent(part))
        .map(UserPart::Part)
        .peekable();
    media
        .peek()
        .is_some()
        .then_some(UserPart::Source(result))
        .into_iter()
        .chain(media)
}
