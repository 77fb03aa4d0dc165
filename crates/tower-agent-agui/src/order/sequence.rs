//! The order of plain events: all but chunks.

use std::sync::Arc;

use super::ends;
use super::lanes::Stream;
use super::owners::{Entities, agree, close};
use super::violation::Violation;
use crate::wire::{EncryptedEntity, Event, EventKind, RunOutcome, RunStarted};

/// The state of one run: its phase, and its open entities with their owners.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    thread_id: Arc<str>,
    run_id: Arc<str>,
    phase: Phase,
    entities: Entities,
}

/// The phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was emitted.
    Before,
    /// `RUN_STARTED` was emitted.
    Running,
    /// The terminal event was emitted.
    Over,
}

impl Sequence {
    pub(super) fn new(thread_id: Arc<str>, run_id: Arc<str>) -> Self {
        Self {
            thread_id,
            run_id,
            phase: Phase::Before,
            entities: Entities::default(),
        }
    }

    /// Returns whether the terminal event was emitted.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Emits `RUN_STARTED` if this is the first event and cannot be the first itself.
    pub(super) fn start_before(&mut self, event: &Event, out: &mut Vec<Event>) {
        let can_be_first = matches!(
            event.kind,
            EventKind::RunStarted(_) | EventKind::RunError(_)
        );
        if self.phase == Phase::Before && !can_be_first {
            self.phase = Phase::Running;
            let started = Event::run_started(self.thread_id.clone(), self.run_id.clone());
            out.push(started);
        }
    }

    /// Emits an event that is not a chunk, after the events that must precede it.
    pub(super) fn emit(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Violation> {
        if self.admit(&event, out)? {
            out.push(event);
        }
        Ok(())
    }

    /// Returns whether the event is emitted.
    fn admit(&mut self, event: &Event, out: &mut Vec<Event>) -> Result<bool, Violation> {
        let name = event.kind.name();
        let tag = event.subagent_run_id();
        match &event.kind {
            EventKind::RunStarted(started) => self.run_started(started),
            EventKind::RunFinished(finished) => {
                self.same_run(name, &finished.thread_id, &finished.run_id)?;
                if let Some(RunOutcome::Interrupt { interrupts }) = &finished.outcome
                    && interrupts.is_empty()
                {
                    // The client could never resume it.
                    return Err(Violation::EmptyInterrupt);
                }
                // The client rejects the end of a run while anything is open.
                self.entities.close_all(finished, out);
                self.phase = Phase::Over;
                Ok(true)
            }
            EventKind::RunError(_) => {
                // Unlike `RUN_FINISHED`, a failure may leave entities open.
                self.phase = Phase::Over;
                Ok(true)
            }
            EventKind::StepStarted { step_name } => Ok(self.entities.start_step(tag, step_name)),
            EventKind::StepFinished { step_name } => self.entities.finish_step(tag, step_name),

            EventKind::TextMessageStart { message_id, .. } => {
                self.entities.start_text(name, message_id, tag)
            }
            EventKind::TextMessageContent { message_id, .. } => {
                match self.entities.messages.get(message_id) {
                    Some(message) if message.opened.is_some() => {
                        agree(name, message_id, tag, &message.owner)?;
                    }
                    _ => {
                        self.entities.start_text(name, message_id, tag)?;
                        out.push(ends::of(
                            Event::text_start(message_id.clone()),
                            &tag.cloned(),
                        ));
                    }
                }
                Ok(true)
            }
            EventKind::TextMessageEnd { message_id } => {
                let Some(message) = self.entities.messages.get_mut(message_id) else {
                    return Ok(false);
                };
                close(name, message_id, tag, (&message.owner, &mut message.opened))
            }

            EventKind::ToolCallStart {
                tool_call_id,
                parent_message_id,
                ..
            } => self
                .entities
                .start_tool_call(tool_call_id, parent_message_id.as_ref(), tag),
            EventKind::ToolCallArgs { tool_call_id, .. } => {
                match self.entities.tool_calls.get(tool_call_id) {
                    Some(call) if call.opened.is_some() => {
                        agree(name, tool_call_id, tag, &call.owner)?;
                        Ok(true)
                    }
                    // Unlike a text, a call cannot be started for its content: the event does not
                    // name the tool.
                    _ => Err(Violation::NotOpen {
                        event: name,
                        id: tool_call_id.clone(),
                    }),
                }
            }
            EventKind::ToolCallEnd { tool_call_id } => {
                let Some(call) = self.entities.tool_calls.get_mut(tool_call_id) else {
                    return Ok(false);
                };
                close(name, tool_call_id, tag, (&call.owner, &mut call.opened))
            }
            EventKind::ToolCallResult { message_id, .. } => {
                // It starts the message again, whoever created one with that id.
                let message = self
                    .entities
                    .messages
                    .entry(message_id.clone())
                    .or_default();
                message.owner = tag.cloned();
                Ok(true)
            }

            EventKind::MessagesSnapshot { messages } => {
                // The snapshot replaces the client's messages, and with them their owners.
                self.entities.seed(messages, true);
                Ok(true)
            }
            EventKind::ActivitySnapshot {
                message_id,
                replace,
                ..
            } => {
                let owners = &mut self.entities.activities;
                if *replace != Some(false) || !owners.contains_key(message_id) {
                    owners.insert(message_id.clone(), tag.cloned());
                }
                Ok(true)
            }
            EventKind::ActivityDelta { message_id, .. } => {
                if let Some(owner) = self.entities.activities.get(message_id) {
                    agree(name, message_id, tag, owner)?;
                }
                Ok(true)
            }

            EventKind::ReasoningStart { message_id } => {
                self.entities
                    .start_thought(name, message_id, tag, |thought| &mut thought.span)
            }
            EventKind::ReasoningMessageStart { message_id, .. } => {
                self.entities
                    .start_thought(name, message_id, tag, |thought| &mut thought.message)
            }
            EventKind::ReasoningMessageContent { message_id, .. } => {
                match self.entities.thoughts.get(message_id) {
                    Some(thought) if thought.message.is_some() => {
                        agree(name, message_id, tag, &thought.owner)?;
                    }
                    _ => {
                        self.entities
                            .start_thought(name, message_id, tag, |thought| &mut thought.message)?;
                        let start = Event::reasoning_message_start(message_id.clone());
                        out.push(ends::of(start, &tag.cloned()));
                    }
                }
                Ok(true)
            }
            EventKind::ReasoningMessageEnd { message_id } => {
                let Some(thought) = self.entities.thoughts.get_mut(message_id) else {
                    return Ok(false);
                };
                close(
                    name,
                    message_id,
                    tag,
                    (&thought.owner, &mut thought.message),
                )
            }
            EventKind::ReasoningEnd { message_id } => {
                let Some(thought) = self.entities.thoughts.get_mut(message_id) else {
                    return Ok(false);
                };
                close(name, message_id, tag, (&thought.owner, &mut thought.span))
            }
            EventKind::ReasoningEncryptedValue {
                subtype, entity_id, ..
            } => {
                let entities = &self.entities;
                let owner = match subtype {
                    EncryptedEntity::ToolCall => {
                        entities.tool_calls.get(entity_id).map(|call| &call.owner)
                    }
                    // The protocol has one word for messages and reasoning.
                    EncryptedEntity::Message => match entities.messages.get(entity_id) {
                        Some(message) => Some(&message.owner),
                        None => entities
                            .thoughts
                            .get(entity_id)
                            .map(|thought| &thought.owner),
                    },
                };
                if let Some(owner) = owner {
                    agree(name, entity_id, tag, owner)?;
                }
                Ok(true)
            }

            EventKind::SubagentStarted(started) => self.entities.start_subagent(started),
            EventKind::SubagentFinished {
                subagent_run_id, ..
            }
            | EventKind::SubagentError {
                subagent_run_id, ..
            } => {
                let subagent = self.entities.subagents.get_mut(subagent_run_id);
                Ok(subagent.and_then(Option::take).is_some())
            }

            EventKind::StateSnapshot { .. }
            | EventKind::StateDelta { .. }
            | EventKind::Raw { .. }
            | EventKind::Custom { .. } => Ok(true),
            // `Chunks` has expanded them; the match stays complete for new kinds of event.
            EventKind::TextMessageChunk { .. }
            | EventKind::ToolCallChunk { .. }
            | EventKind::ReasoningMessageChunk { .. } => Ok(false),
        }
    }

    fn run_started(&mut self, started: &RunStarted) -> Result<bool, Violation> {
        self.same_run("RUN_STARTED", &started.thread_id, &started.run_id)?;
        if self.phase != Phase::Before {
            return Ok(false);
        }
        self.phase = Phase::Running;
        if let Some(input) = &started.input {
            // Only those not known yet: the client does not replace a message it has by the
            // input's.
            self.entities.seed(&input.messages, false);
        }
        Ok(true)
    }

    fn same_run(&self, event: &'static str, thread: &str, run: &str) -> Result<(), Violation> {
        if (thread, run) == (&*self.thread_id, &*self.run_id) {
            return Ok(());
        }
        Err(Violation::WrongRun {
            event,
            expected: format!(
                "the run `{}` of the thread `{}`",
                self.run_id, self.thread_id
            ),
            found: format!("the run `{run}` of the thread `{thread}`"),
        })
    }

    /// Returns whether the entity is open.
    pub(super) fn is_open(&self, stream: Stream, id: &str) -> bool {
        let entities = &self.entities;
        let opened = match stream {
            Stream::Text => entities.messages.get(id).map(|message| message.opened),
            Stream::ToolCall => entities.tool_calls.get(id).map(|call| call.opened),
            Stream::Reasoning => entities.thoughts.get(id).map(|thought| thought.message),
        };
        opened.flatten().is_some()
    }
}
