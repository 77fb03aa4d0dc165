use super::part::{is_sent, write_part, write_result, write_text};
use super::{PROTOCOL, SIGNED_PROTOCOL};
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
    out.push(b'[');
    request.write_messages(protocol, out, |index, out| message(messages, index, is_signed, out))?;
    let mut contents = Contents { open: open_before(messages, messages.len()), out };
    contents.shown(shown_before(messages, messages.len()))?;
    contents.end();
    Ok(())
}

/// What a content is made of. The end of a content is written by what follows, since only that
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
                let role = if group == Group::Model { "model" } else { "user" };
                self.out.extend_from_slice(b"{\"role\":");
                write(self.out, role)?;
                self.out.extend_from_slice(b",\"parts\":[");
            }
        }
        write_part(self.out)
    }

    fn shown(&mut self, all: Vec<Shown<'_>>) -> Result<()> {
        for one in all {
            self.part(Group::User, |out| match one {
                Shown::Media(of) => {
                    let text = format!("Shown by the tool `{}` (call {}):", of.name, of.call_id);
                    write_text(&text, &ProviderData::default(), out)
                }
                Shown::Part(part) => write_part(part, false, out),
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
    let Some(group) = own_group(message.role())? else { return Ok(()) };
    if last_group(message).is_none() {
        return Ok(());
    }
    let mut contents = Contents { open: open_before(messages, index), out };
    if message.role() != Role::Tool {
        contents.shown(shown_before(messages, index))?;
    }
    for result in message.tool_results() {
        contents.part(Group::Results, |out| write_result(result, out))?;
    }
    if message.role() == Role::Tool {
        return Ok(());
    }
    contents.shown(message.tool_results().flat_map(media_of).collect())?;
    let mut must_be_signed = is_signed;
    for part in message.parts().iter().filter(|part| is_sent(part)) {
        contents.part(group, |out| write_part(part, must_be_signed, out))?;
        // Of parallel calls only the first is signed.
        must_be_signed &= !matches!(part, Part::ToolCall(_));
    }
    Ok(())
}

/// Returns the group of a message's own parts. System messages are sent elsewhere.
fn own_group(role: Role) -> Result<Option<Group>> {
    Ok(match role {
        Role::System => None,
        Role::User => Some(Group::User),
        Role::Assistant => Some(Group::Model),
        Role::Tool => Some(Group::Results),
        _ => return Err(unsupported("role")),
    })
}

/// Returns the group of the last part that a message writes, if it writes any.
fn last_group(message: &Message) -> Option<Group> {
    let has_results = message.tool_results().next().is_some();
    let has_own = || {
        message.parts().iter().any(is_sent)
            || message.tool_results().any(|result| media_of(result).next().is_some())
    };
    match message.role() {
        Role::System => None,
        Role::Assistant if has_own() => Some(Group::Model),
        Role::User if has_own() => Some(Group::User),
        _ => has_results.then_some(Group::Results),
    }
}

/// Returns the content that is still open before a message.
fn open_before(messages: &Messages, index: usize) -> Option<Group> {
    (0..index).rev().find_map(|at| last_group(&messages[at]))
}

/// Images, audio and documents from tool results.
enum Shown<'a> {
    /// The line that names the source of the following parts.
    Media(&'a ToolResult),
    Part(&'a Part),
}

/// Returns what is shown by the tool messages that end before a message. Results must not be
/// separated, so it follows the last one.
fn shown_before(messages: &Messages, index: usize) -> Vec<Shown<'_>> {
    let is_tool = |at: usize| messages[at].role() == Role::Tool;
    let last = (0..index).rev().find(|&at| !is_tool(at) && last_group(&messages[at]).is_some());
    let start = last.map_or(0, |last| last + 1);
    let mut all = Vec::new();
    for at in (start..index).filter(|&at| is_tool(at)) {
        all.extend(messages[at].tool_results().flat_map(media_of));
        all.extend(messages[at].parts().iter().filter(|part| is_sent(part)).map(Shown::Part));
    }
    all
}

/// Returns the media of a result, after a line that names it.
fn media_of(result: &ToolResult) -> impl Iterator<Item = Shown<'_>> {
    let is_media = |part: &&Part| !matches!(part, Part::Text(_)) && is_sent(part);
    let mut media = result.parts.iter().filter(is_media).map(Shown::Part).peekable();
    media.peek().is_some().then_some(Shown::Media(result)).into_iter().chain(media)
}
