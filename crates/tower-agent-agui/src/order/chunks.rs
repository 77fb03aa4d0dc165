//! Expands chunks to starts, content and ends.

use std::sync::Arc;

use super::ends;
use super::keeper::OrderKeeper;
use super::lanes::{Lane, Stream};
use super::owners::{Owner, agree};
use super::violation::Violation;
use crate::wire::{Event, EventKind, ReasoningRole};

/// Returns the id in a chunk.
fn named(chunk: &EventKind) -> Option<&Arc<str>> {
    match chunk {
        EventKind::TextMessageChunk { message_id: id, .. }
        | EventKind::ToolCallChunk {
            tool_call_id: id, ..
        }
        | EventKind::ReasoningMessageChunk { message_id: id, .. } => id.as_ref(),
        _ => None,
    }
}

/// Returns the start and the content that a chunk stands for, with the id `id`: the start if the
/// chunk has enough data for one, the content if it has any.
fn spell_out(chunk: &mut EventKind, id: &Arc<str>) -> (Option<EventKind>, Option<EventKind>) {
    let id = id.clone();
    match chunk {
        EventKind::TextMessageChunk {
            role, name, delta, ..
        } => {
            let (role, name) = (role.take(), name.take());
            let start = EventKind::TextMessageStart {
                message_id: id.clone(),
                role,
                name,
            };
            let content = |delta| EventKind::TextMessageContent {
                message_id: id,
                delta,
            };
            (Some(start), delta.take().map(content))
        }
        EventKind::ToolCallChunk {
            tool_call_name,
            parent_message_id,
            delta,
            ..
        } => {
            let start = tool_call_name
                .take()
                .map(|tool_call_name| EventKind::ToolCallStart {
                    tool_call_id: id.clone(),
                    tool_call_name,
                    parent_message_id: parent_message_id.take(),
                });
            let content = |delta| EventKind::ToolCallArgs {
                tool_call_id: id,
                delta,
            };
            (start, delta.take().map(content))
        }
        EventKind::ReasoningMessageChunk { delta, .. } => {
            let role = ReasoningRole::Reasoning;
            let start = EventKind::ReasoningMessageStart {
                message_id: id.clone(),
                role,
            };
            let content = |delta| EventKind::ReasoningMessageContent {
                message_id: id,
                delta,
            };
            (Some(start), delta.take().map(content))
        }
        _ => (None, None),
    }
}

impl OrderKeeper {
    /// Before a plain event of an agent, ends what its chunks have started.
    pub(super) fn close_lanes_before(&mut self, event: &Event, out: &mut Vec<Event>) {
        match event.kind {
            EventKind::Raw { .. }
            | EventKind::ActivitySnapshot { .. }
            | EventKind::ActivityDelta { .. }
            | EventKind::ReasoningEncryptedValue { .. }
            | EventKind::SubagentStarted(_) => {}
            EventKind::RunStarted(_)
            | EventKind::RunFinished(_)
            | EventKind::RunError(_)
            | EventKind::MessagesSnapshot { .. } => {
                for lane in std::mem::take(&mut self.lanes) {
                    self.end(lane, out);
                }
            }
            _ => self.close_lane(&event.subagent_run_id().cloned(), out),
        }
    }

    fn close_lane(&mut self, owner: &Owner, out: &mut Vec<Event>) {
        if let Some(at) = self.lanes.iter().position(|lane| lane.owner == *owner) {
            let lane = self.lanes.remove(at);
            self.end(lane, out);
        }
    }

    fn end(&mut self, lane: Lane, out: &mut Vec<Event>) {
        let Lane { owner, stream, id } = lane;
        let end = match stream {
            Stream::Text => Event::text_end(id),
            Stream::ToolCall => Event::tool_call_end(id),
            Stream::Reasoning => Event::reasoning_message_end(id),
        };
        // The end of an entity that is not open is dropped. If another agent has taken it over, the
        // end is rejected, and that agent ends it.
        let _ = self.place(ends::of(end, &owner), out);
    }

    /// Emits the events that a chunk stands for.
    pub(super) fn chunk(
        &mut self,
        stream: Stream,
        mut event: Event,
        out: &mut Vec<Event>,
    ) -> Result<(), Violation> {
        let (id, owner) = self.lane_of(stream, &event)?;
        let name = event.kind.name();
        let opens = !self.is_open(stream, &id);
        let (start, content) = spell_out(&mut event.kind, &id);
        if opens && start.is_none() {
            return Err(Violation::Chunk {
                event: name,
                field: "toolCallName",
            });
        }
        let other = |lane: &Lane| lane.owner == owner && (lane.stream != stream || lane.id != id);
        if self.lanes.iter().any(other) {
            self.close_lane(&owner, out);
        }
        // The chunk's metadata goes to the content, or to the start if there is no content.
        let mut event = ends::of(event, &owner);
        match (start.filter(|_| opens), content) {
            (Some(start), Some(content)) => {
                self.place(ends::of(start.into(), &owner), out)?;
                event.kind = content;
            }
            (Some(kind), None) | (None, Some(kind)) => event.kind = kind,
            (None, None) => return Ok(()),
        }
        self.place(event, out)?;
        if opens {
            self.lanes.retain(|lane| lane.owner != owner);
            self.lanes.push(Lane { owner, stream, id });
        }
        Ok(())
    }

    /// Returns the entity that the chunk continues or starts, and its owner.
    fn lane_of(&self, stream: Stream, event: &Event) -> Result<(Arc<str>, Owner), Violation> {
        let (id, tag) = (named(&event.kind), event.subagent_run_id());
        let mut lanes = self.lanes.iter().filter(|lane| lane.stream == stream);
        let lane = match (id, tag) {
            (Some(id), _) => lanes.find(|lane| lane.id == *id),
            (None, Some(_)) => lanes.find(|lane| lane.owner.as_ref() == tag),
            // The agent's own, or the only one.
            (None, None) => lanes.clone().find(|lane| lane.owner.is_none()).or_else(|| {
                let first = lanes.next();
                first.filter(|_| lanes.next().is_none())
            }),
        };
        match (id, lane) {
            (_, Some(lane)) => {
                agree(event.kind.name(), &lane.id, tag, &lane.owner)?;
                Ok((lane.id.clone(), lane.owner.clone()))
            }
            (Some(id), None) => Ok((id.clone(), tag.cloned())),
            (None, None) => {
                let field = if stream == Stream::ToolCall {
                    "toolCallId"
                } else {
                    "messageId"
                };
                Err(Violation::Chunk {
                    event: event.kind.name(),
                    field,
                })
            }
        }
    }
}
