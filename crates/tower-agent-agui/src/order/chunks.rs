//! Expands chunks to starts, content and ends.

use std::sync::Arc;

use super::ends;
use super::lanes::{Lane, Stream};
use super::owners::{Owner, agree};
use super::sequence::Sequence;
use super::violation::Violation;
use crate::wire::{Event, EventKind, ReasoningRole};

/// The open entities that chunks have started.
///
/// No event ends an entity that a chunk has started. It therefore ends as soon as its agent sends
/// anything else.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    lanes: Vec<Lane>,
}

impl Chunks {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Before a plain event of an agent, ends the entities that its chunks have started.
    pub(super) fn close_before(
        &mut self,
        event: &Event,
        sequence: &mut Sequence,
        out: &mut Vec<Event>,
    ) {
        match event.kind {
            // These neither continue nor end a text or a call, so its chunks may go on after them.
            EventKind::Raw { .. }
            | EventKind::ActivitySnapshot { .. }
            | EventKind::ActivityDelta { .. }
            | EventKind::ReasoningEncryptedValue { .. }
            | EventKind::SubagentStarted(_) => {}
            // These concern the run, and thus every agent in it.
            EventKind::RunStarted(_)
            | EventKind::RunFinished(_)
            | EventKind::RunError(_)
            | EventKind::MessagesSnapshot { .. } => {
                for lane in std::mem::take(&mut self.lanes) {
                    end(lane, sequence, out);
                }
            }
            // Every kind is listed, so that a new one needs a decision here.
            EventKind::StepStarted { .. }
            | EventKind::StepFinished { .. }
            | EventKind::TextMessageStart { .. }
            | EventKind::TextMessageContent { .. }
            | EventKind::TextMessageEnd { .. }
            | EventKind::TextMessageChunk { .. }
            | EventKind::ToolCallStart { .. }
            | EventKind::ToolCallArgs { .. }
            | EventKind::ToolCallEnd { .. }
            | EventKind::ToolCallChunk { .. }
            | EventKind::ToolCallResult { .. }
            | EventKind::StateSnapshot { .. }
            | EventKind::StateDelta { .. }
            | EventKind::ReasoningStart { .. }
            | EventKind::ReasoningMessageStart { .. }
            | EventKind::ReasoningMessageContent { .. }
            | EventKind::ReasoningMessageEnd { .. }
            | EventKind::ReasoningMessageChunk { .. }
            | EventKind::ReasoningEnd { .. }
            | EventKind::SubagentFinished { .. }
            | EventKind::SubagentError { .. }
            | EventKind::Custom { .. } => {
                self.close(&event.subagent_run_id().cloned(), sequence, out);
            }
        }
    }

    /// Ends the entity that chunks of this agent have started, if there is one.
    fn close(&mut self, owner: &Owner, sequence: &mut Sequence, out: &mut Vec<Event>) {
        if let Some(at) = self.lanes.iter().position(|lane| lane.owner == *owner) {
            let lane = self.lanes.remove(at);
            end(lane, sequence, out);
        }
    }

    /// Emits the events that a chunk stands for.
    pub(super) fn expand(
        &mut self,
        stream: Stream,
        mut event: Event,
        sequence: &mut Sequence,
        out: &mut Vec<Event>,
    ) -> Result<(), Violation> {
        let (id, owner) = self.target(stream, &event)?;
        let name = event.kind.name();
        let opens = !sequence.is_open(stream, &id);
        let (start, content) = spell_out(&mut event.kind, &id);
        // Checked before anything is emitted: a rejected chunk must leave the state as it was.
        if opens && start.is_none() {
            return Err(Violation::Chunk {
                event: name,
                field: "toolCallName",
            });
        }
        let has_another = self.lanes.iter().any(|lane| {
            let is_target = lane.stream == stream && lane.id == id;
            lane.owner == owner && !is_target
        });
        if has_another {
            self.close(&owner, sequence, out);
        }
        // The chunk's metadata goes to the content, or to the start if there is no content.
        let mut event = ends::of(event, &owner);
        match (start.filter(|_| opens), content) {
            (Some(start), Some(content)) => {
                sequence.emit(ends::of(start.into(), &owner), out)?;
                event.kind = content;
            }
            (Some(kind), None) | (None, Some(kind)) => event.kind = kind,
            (None, None) => return Ok(()),
        }
        sequence.emit(event, out)?;
        // Only an entity that a chunk opened is ended here. One that a plain start opened has an
        // end of its own.
        if opens {
            self.lanes.retain(|lane| lane.owner != owner);
            self.lanes.push(Lane { owner, stream, id });
        }
        Ok(())
    }

    /// Returns the entity that the chunk continues or starts, and its owner.
    fn target(&self, stream: Stream, event: &Event) -> Result<(Arc<str>, Owner), Violation> {
        let id = chunk_id(&event.kind);
        let tag = event.subagent_run_id();
        let mut lanes = self.lanes.iter().filter(|lane| lane.stream == stream);
        let lane = match (id, tag) {
            (Some(id), _) => lanes.find(|lane| lane.id == *id),
            (None, Some(_)) => lanes.find(|lane| lane.owner.as_ref() == tag),
            // The agent's own, or the only one. Of several subagents the chunk could be any's.
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
                let field = match stream {
                    Stream::ToolCall => "toolCallId",
                    Stream::Text | Stream::Reasoning => "messageId",
                };
                Err(Violation::Chunk {
                    event: event.kind.name(),
                    field,
                })
            }
        }
    }
}

/// Emits the end of an entity that a chunk has started.
fn end(lane: Lane, sequence: &mut Sequence, out: &mut Vec<Event>) {
    let end = match lane.stream {
        Stream::Text => Event::text_end(lane.id),
        Stream::ToolCall => Event::tool_call_end(lane.id),
        Stream::Reasoning => Event::reasoning_message_end(lane.id),
    };
    // The end of an entity that is not open is dropped. If another agent has taken it over, the
    // end is rejected, and that agent ends it.
    let _ = sequence.emit(ends::of(end, &lane.owner), out);
}

/// Returns the id in a chunk.
fn chunk_id(chunk: &EventKind) -> Option<&Arc<str>> {
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
    match chunk {
        EventKind::TextMessageChunk {
            role, name, delta, ..
        } => {
            let start = EventKind::TextMessageStart {
                message_id: id.clone(),
                role: role.take(),
                name: name.take(),
            };
            let content = delta.take().map(|delta| EventKind::TextMessageContent {
                message_id: id.clone(),
                delta,
            });
            (Some(start), content)
        }
        EventKind::ToolCallChunk {
            tool_call_name,
            parent_message_id,
            delta,
            ..
        } => {
            // A call cannot start without the name of its tool.
            let start = tool_call_name
                .take()
                .map(|tool_call_name| EventKind::ToolCallStart {
                    tool_call_id: id.clone(),
                    tool_call_name,
                    parent_message_id: parent_message_id.take(),
                });
            let content = delta.take().map(|delta| EventKind::ToolCallArgs {
                tool_call_id: id.clone(),
                delta,
            });
            (start, content)
        }
        EventKind::ReasoningMessageChunk { delta, .. } => {
            let start = EventKind::ReasoningMessageStart {
                message_id: id.clone(),
                role: ReasoningRole::Reasoning,
            };
            let content = delta
                .take()
                .map(|delta| EventKind::ReasoningMessageContent {
                    message_id: id.clone(),
                    delta,
                });
            (Some(start), content)
        }
        _ => (None, None),
    }
}
