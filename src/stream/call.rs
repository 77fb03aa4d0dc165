//! The visible state of model calls. It is stored with the events under one lock, so that state and
//! events cannot differ.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

use super::channel::{EventBatch, EventChannel};
use super::delta::Delta;
use super::event::{EventKind, ToolCallStart};
use super::message_builder::{self, shows_same};
use super::unfinished::Unfinished;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{IdPart, Message, MessageId, Usage};

/// The events of a run, and the visible state of its running model calls.
pub(super) type CallChannel = EventChannel<Calls>;

pub(super) type Calls = Slab<VisibleCall>;

/// A running model call, and its visible state in the channel.
#[derive(Debug)]
pub(super) struct CallHandle {
    channel: Arc<CallChannel>,
    key: usize,
}

impl CallHandle {
    pub(super) fn new(channel: Arc<CallChannel>, message: MessageId) -> Self {
        let key = channel.look(|calls| calls.insert(VisibleCall::new(message)));
        Self { channel, key }
    }

    #[inline]
    pub(super) fn of<'a>(&self, calls: &'a mut Calls) -> &'a mut VisibleCall {
        &mut calls[self.key]
    }

    /// Accesses the call without adding events.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut VisibleCall) -> T) -> T {
        self.channel.look(|calls| look(self.of(calls)))
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        // The call is returned from under the lock and dropped outside it. Not `remove`, which may
        // panic.
        drop(self.channel.look(|calls| calls.try_remove(self.key)));
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Received(pub(super) Arc<CallHandle>);

impl Received {
    /// Returns what had been received of the attempts that did not finish, each of them once.
    pub(crate) fn take(&self) -> Vec<Unfinished> {
        self.0.look(VisibleCall::count_unfinished)
    }
}

/// The visible state of one model call. Only one attempt at a time is visible: the first with
/// output, until it is dropped or finished and another has output.
#[derive(Debug)]
pub(super) struct VisibleCall {
    /// The id of the message that shows the first attempt.
    pub(super) message: MessageId,
    attempts: u32,
    live: Option<Live>,
    pub(super) unfinished: Vec<Unfinished>,
    /// The number of them that were counted.
    counted: usize,
    /// The kind of the error of the last attempt that failed.
    pub(super) failure: Option<ErrorKind>,
    is_over: bool,
}

#[derive(Debug)]
struct Live {
    attempt: u32,
    blocks: Blocks,
    phase: LivePhase,
}

#[derive(Debug)]
enum LivePhase {
    Writing,
    Abandoned(Unfinished),
    /// It has finished, and `sent` was visible. Only attempts that started later replace it.
    Finished {
        sent: Message,
        attempts: u32,
    },
}

impl Live {
    fn yields_to(&self, attempt: u32) -> bool {
        match self.phase {
            LivePhase::Writing => false,
            LivePhase::Abandoned(_) => true,
            LivePhase::Finished { attempts, .. } => attempt >= attempts,
        }
    }

    fn discard(mut self, error: Option<ErrorKind>, out: &mut EventBatch<'_>) {
        self.blocks.close(out);
        let usage = match self.phase {
            LivePhase::Abandoned(received) => received.usage,
            LivePhase::Writing | LivePhase::Finished { .. } => Usage::default(),
        };
        out.push(EventKind::AttemptDiscarded {
            message: self.blocks.message,
            error,
            usage: Box::new(usage),
        });
    }
}

impl VisibleCall {
    pub(super) fn new(message: MessageId) -> Self {
        Self {
            message,
            attempts: 0,
            live: None,
            unfinished: Vec::new(),
            counted: 0,
            failure: None,
            is_over: false,
        }
    }

    /// Returns the number of a new attempt.
    pub(super) fn open(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts - 1
    }

    pub(super) fn is_committed(&self) -> bool {
        self.live.is_some()
    }

    /// Returns what had been received of those that were not counted so far, and counts them. Of
    /// those that had received nothing there is nothing to count.
    fn count_unfinished(&mut self) -> Vec<Unfinished> {
        let counted = std::mem::replace(&mut self.counted, self.unfinished.len());
        let unfinished = self.unfinished[counted..].iter();
        let received = unfinished.filter(|attempt| **attempt != Unfinished::default());
        received.copied().collect()
    }

    pub(super) fn message_of(&self, attempt: u32) -> MessageId {
        self.message.attempt(attempt)
    }

    /// Returns the id of the response: that of the message that shows it, if one does.
    pub(super) fn id_of(&self, response: &Message) -> MessageId {
        let shown = self.live.as_ref().map(|live| &live.blocks.id);
        if let Some(live) = &self.live
            && let LivePhase::Finished { sent, .. } = &live.phase
            && shows_same(sent, response)
        {
            return live.blocks.id.clone();
        }
        match response.id() {
            // A layer has chosen it, such as one that replays a response.
            Some(id) if Some(id) != shown && !self.is_of_attempt(id) => id.clone(),
            // The output of an attempt is taken back, and its id with it.
            _ => self.message_of(self.attempts),
        }
    }

    fn is_of_attempt(&self, id: &MessageId) -> bool {
        (0..self.attempts).any(|attempt| self.message_of(attempt) == *id)
    }

    /// Returns an id for a tool call without one.
    pub(super) fn name_tool_call(&self, attempt: u32, index: usize) -> String {
        format!("{}{}", self.message_of(attempt), IdPart::Call(index))
    }

    /// Makes this attempt the visible one, if possible. `draft` is its message so far.
    fn claim(
        &mut self,
        attempt: u32,
        draft: Vec<Delta>,
        out: &mut EventBatch<'_>,
    ) -> Option<&mut Live> {
        if self
            .live
            .as_ref()
            .is_some_and(|live| !live.yields_to(attempt))
        {
            return None;
        }
        // One attempt is visible at a time, so the earlier one is taken back first.
        if let Some(void) = self.live.take() {
            void.discard(self.failure, out);
        }
        let mut blocks = Blocks::new(self.message_of(attempt));
        draft.into_iter().for_each(|delta| blocks.write(delta, out));
        Some(self.live.insert(Live {
            attempt,
            blocks,
            phase: LivePhase::Writing,
        }))
    }

    /// Adds output of an attempt; `draft` is its message so far.
    #[inline]
    pub(super) fn write(
        &mut self,
        attempt: u32,
        mut deltas: impl Iterator<Item = Delta>,
        draft: impl FnOnce() -> Vec<Delta>,
        out: &mut EventBatch<'_>,
    ) -> Result<()> {
        if self.is_over {
            let message = "the call has a response from another attempt";
            return Err(Error::new(ErrorKind::Cancelled, message));
        }
        match &mut self.live {
            Some(live) if live.attempt == attempt => {
                deltas.for_each(|delta| live.blocks.write(delta, out));
            }
            // Its message is kept, and shown from the start if the visible attempt fails.
            Some(live) if !live.yields_to(attempt) => {}
            // Without content there is nothing to see yet.
            _ if deltas.all(|delta| delta.is_empty()) => {}
            _ => drop(self.claim(attempt, draft(), out)),
        }
        Ok(())
    }

    /// Ends an attempt; `sent` is its visible message.
    pub(super) fn finish(&mut self, attempt: u32, sent: Message, out: &mut EventBatch<'_>) {
        if self.is_over || !message_builder::is_visible(&sent) {
            return;
        }
        // Attempts that are open by now ran beside this one, which was the first to finish.
        let attempts = self.attempts;
        let live = match &mut self.live {
            Some(live) if live.attempt == attempt => Some(live),
            _ => self.claim(attempt, message_builder::deltas(&sent), out),
        };
        if let Some(live) = live {
            live.blocks.close(out);
            live.phase = LivePhase::Finished { sent, attempts };
        }
    }

    pub(super) fn abandon(&mut self, attempt: u32, received: Unfinished) {
        self.unfinished.push(received);
        match &mut self.live {
            Some(live) if live.attempt == attempt && matches!(live.phase, LivePhase::Writing) => {
                live.phase = LivePhase::Abandoned(received);
            }
            _ => {}
        }
    }

    /// Ends the call: the visible message becomes the response, whose id says whether it is shown.
    pub(super) fn settle(
        &mut self,
        answer: Option<(&Message, Option<u32>)>,
        out: &mut EventBatch<'_>,
    ) {
        self.is_over = true;
        if let Some(mut live) = self.live.take() {
            match (&live.phase, answer) {
                (LivePhase::Finished { .. }, Some((message, _)))
                    if message.id() == Some(&live.blocks.id) =>
                {
                    // Deltas have no place for provider data, and an `after` may have changed it.
                    provider_data(&live.blocks.id, message, out);
                    return;
                }
                // It is replaced by another response.
                (LivePhase::Finished { .. }, Some((_, by)))
                    if by.is_none_or(|by| by == live.attempt) =>
                {
                    live.blocks.close(out);
                    out.push(EventKind::ResponseReplaced {
                        message: live.blocks.message,
                    });
                }
                // The call has failed, or its response came from an attempt that was not visible.
                _ => live.discard(self.failure, out),
            }
        }
        if let Some((message, _)) = answer
            && let Some(id) = message.id()
            && message_builder::is_visible(message)
        {
            show(id, message, out);
        }
    }
}

/// Emits a whole message that was not streamed.
pub(super) fn show(id: &MessageId, message: &Message, out: &mut EventBatch<'_>) {
    let mut blocks = Blocks::new(id.clone());
    message_builder::deltas(message)
        .into_iter()
        .for_each(|delta| blocks.write(delta, out));
    blocks.close(out);
    provider_data(id, message, out);
}

fn provider_data(id: &MessageId, message: &Message, out: &mut EventBatch<'_>) {
    for (index, call) in message.tool_calls().enumerate() {
        if !call.provider.is_empty() {
            out.push(EventKind::ToolCallProviderData {
                id: id.tool_call(index),
                data: call.provider.clone(),
            });
        }
    }
}

/// The open blocks of one message.
#[derive(Debug)]
pub(super) struct Blocks {
    id: MessageId,
    /// The id as every event has it.
    message: Arc<str>,
    has_text: bool,
    reasoning: Option<Arc<str>>,
    reasonings: u32,
    call_count: usize,
    /// The calls that have not ended.
    calls: Vec<Arc<str>>,
    /// The last call with each index.
    by_index: HashMap<usize, Arc<str>>,
}

impl Blocks {
    pub(super) fn new(id: MessageId) -> Self {
        Self {
            message: id.to_shared(),
            id,
            has_text: false,
            reasoning: None,
            reasonings: 0,
            call_count: 0,
            calls: Vec::new(),
            by_index: HashMap::new(),
        }
    }

    #[inline]
    pub(super) fn write(&mut self, delta: Delta, out: &mut EventBatch<'_>) {
        if delta.is_empty() {
            return;
        }
        // Anything else ends a block of reasoning. Text and calls stay open until the message ends.
        if !matches!(delta, Delta::Reasoning(_)) {
            self.close_reasoning(out);
        }
        match delta {
            Delta::Text(text) => {
                self.start_text(out);
                out.push(EventKind::TextDelta {
                    message: self.message.clone(),
                    text,
                });
            }
            Delta::Reasoning(text) => {
                let id = self.reasoning(out);
                out.push(EventKind::ReasoningDelta { id, text });
            }
            Delta::ToolCall { index, id, name } => self.start_call(index, id, name, out),
            Delta::Arguments { index, json } => {
                if let Some(id) = self.by_index.get(&index) {
                    out.push(EventKind::ToolCallDelta {
                        id: id.clone(),
                        json,
                    });
                }
            }
        }
    }

    #[inline]
    fn start_text(&mut self, out: &mut EventBatch<'_>) {
        if !self.has_text {
            self.has_text = true;
            out.push(EventKind::TextStart {
                message: self.message.clone(),
            });
        }
    }

    // Apart, so that `write` stays small where it is inlined.
    #[inline(never)]
    fn start_call(
        &mut self,
        index: usize,
        call_id: Arc<str>,
        name: Arc<str>,
        out: &mut EventBatch<'_>,
    ) {
        let id = self.id.tool_call(self.call_count);
        self.call_count += 1;
        self.calls.push(id.clone());
        self.by_index.insert(index, id.clone());
        out.push(EventKind::ToolCallStart(Box::new(ToolCallStart {
            id,
            name,
            message: self.message.clone(),
            call_id,
        })));
    }

    // Apart as well.
    #[inline(never)]
    fn reasoning(&mut self, out: &mut EventBatch<'_>) -> Arc<str> {
        if let Some(id) = &self.reasoning {
            return id.clone();
        }
        let id: Arc<str> = {
            let part = IdPart::Reasoning(self.reasonings);
            format!("{}{part}", self.message).into()
        };
        self.reasonings += 1;
        self.reasoning = Some(id.clone());
        out.push(EventKind::ReasoningStart {
            id: id.clone(),
            message: self.message.clone(),
        });
        id
    }

    #[inline]
    fn close_reasoning(&mut self, out: &mut EventBatch<'_>) {
        if let Some(id) = self.reasoning.take() {
            out.push(EventKind::ReasoningEnd { id });
        }
    }

    pub(super) fn close(&mut self, out: &mut EventBatch<'_>) {
        self.close_reasoning(out);
        if std::mem::take(&mut self.has_text) {
            out.push(EventKind::TextEnd {
                message: self.message.clone(),
            });
        }
        self.by_index.clear();
        self.calls
            .drain(..)
            .for_each(|id| out.push(EventKind::ToolCallEnd { id }));
    }
}
