use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use super::ends;
use super::lanes::{self, Lane, Stream};
use super::owners::{Entities, agree, close};
use super::violation::Violation;
use crate::wire::{EncryptedEntity, Event, EventKind, RunError, RunOutcome, RunStarted};

/// Keeps the events of one run in order: see the [module](crate::order).
///
/// An event that continues an open entity costs one look-up and no allocation.
#[derive(Clone, Debug)]
pub struct OrderKeeper {
    thread_id: Arc<str>,
    run_id: Arc<str>,
    phase: Phase,
    pub(super) entities: Entities,
    pub(super) lanes: Vec<Lane>,
    /// The entity that the last event continued, so that the next one needs no look-up.
    current: Option<Current>,
}

/// The entity that accepts content without checks.
#[derive(Clone, Debug)]
struct Current {
    kind: Discriminant<EventKind>,
    id: Arc<str>,
    owner: Option<Arc<str>>,
}

impl Current {
    fn of(event: &Event) -> Option<Self> {
        let (kind, owner) = (discriminant(&event.kind), event.subagent_run_id().cloned());
        event.kind.piece().map(|(id, _)| Self {
            kind,
            id: id.clone(),
            owner,
        })
    }

    fn is_of(&self, event: &Event) -> bool {
        let is_same = |owner: &Arc<str>, other| Arc::ptr_eq(owner, other);
        event
            .kind
            .piece()
            .is_some_and(|(id, _)| Arc::ptr_eq(id, &self.id))
            && self.kind == discriminant(&event.kind)
            && match (&self.owner, event.subagent_run_id()) {
                (None, None) => true,
                (Some(owner), Some(other)) => is_same(owner, other),
                _ => false,
            }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Running,
    Over,
}

impl OrderKeeper {
    /// Creates a keeper for the run `run_id` of the thread `thread_id`.
    #[must_use]
    pub fn new(thread_id: impl Into<Arc<str>>, run_id: impl Into<Arc<str>>) -> Self {
        Self {
            thread_id: thread_id.into(),
            run_id: run_id.into(),
            phase: Phase::Before,
            entities: Entities::default(),
            lanes: Vec::new(),
            current: None,
        }
    }

    /// Takes the next event and appends the resulting events to `out`.
    ///
    /// # Errors
    ///
    /// Fails if the event is out of order and cannot be repaired. Events already in `out` may be
    /// sent, and the keeper is in the state before the event. To end the run, pass the error to
    /// [`fail`](Self::fail).
    pub fn push(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Violation> {
        if self.goes_on(&event) {
            out.push(event);
            return Ok(());
        }
        self.current = None;
        match self.phase {
            Phase::Over => return Ok(()),
            Phase::Running => {}
            Phase::Before => {
                let first = matches!(
                    event.kind,
                    EventKind::RunStarted(_) | EventKind::RunError(_)
                );
                if !first {
                    self.phase = Phase::Running;
                    out.push(Event::run_started(
                        self.thread_id.clone(),
                        self.run_id.clone(),
                    ));
                }
            }
        }
        if let Some(stream) = lanes::stream(&event) {
            return self.chunk(stream, event, out);
        }
        if !self.lanes.is_empty() {
            self.close_lanes_before(&event, out);
        }
        let content = Current::of(&event);
        self.place(event, out)?;
        self.current = content;
        Ok(())
    }

    /// Ends the run with `RUN_ERROR`, unless it has ended.
    pub fn fail(&mut self, error: impl Into<RunError>, out: &mut Vec<Event>) {
        // An error event is never rejected.
        let _ = self.push(Event::from(error.into()), out);
    }

    /// Ends the stream of events. A run without a terminal event fails with the code `UNFINISHED`.
    pub fn finish(&mut self, out: &mut Vec<Event>) {
        let error =
            RunError::new("the run stopped without a terminal event").with_code("UNFINISHED");
        self.fail(error, out);
    }

    /// Returns whether the terminal event was emitted. No event follows it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns whether the event continues the current entity and passes unchanged.
    pub(crate) fn goes_on(&self, event: &Event) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.is_of(event))
    }

    /// Emits an event that is not a chunk, after the events that must precede it.
    pub(super) fn place(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Violation> {
        if self.admit(&event, out)? {
            out.push(event);
        }
        Ok(())
    }

    /// Returns whether the event is emitted.
    fn admit(&mut self, event: &Event, out: &mut Vec<Event>) -> Result<bool, Violation> {
        let (name, tag) = (event.kind.name(), event.subagent_run_id());
        match &event.kind {
            EventKind::RunStarted(started) => self.run_started(started),
            EventKind::RunFinished(finished) => {
                self.same_run(name, &finished.thread_id, &finished.run_id)?;
                if let Some(RunOutcome::Interrupt { interrupts }) = &finished.outcome
                    && interrupts.is_empty()
                {
                    return Err(Violation::EmptyInterrupt);
                }
                self.entities.close_all(finished, out);
                self.phase = Phase::Over;
                Ok(true)
            }
            EventKind::RunError(_) => {
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
                    EncryptedEntity::Message => {
                        let message = entities.messages.get(entity_id);
                        let thought = || entities.thoughts.get(entity_id);
                        message
                            .map(|it| &it.owner)
                            .or_else(|| thought().map(|it| &it.owner))
                    }
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
            // Chunks are expanded earlier.
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

    pub(super) fn is_open(&self, stream: Stream, id: &str) -> bool {
        match stream {
            Stream::Text => self.entities.messages.get(id).and_then(|it| it.opened),
            Stream::ToolCall => self.entities.tool_calls.get(id).and_then(|it| it.opened),
            Stream::Reasoning => self.entities.thoughts.get(id).and_then(|it| it.message),
        }
        .is_some()
    }
}
