//! A conversation as the loop of an agent writes it.

use super::call_name::CallName;
use super::ordered_messages::OrderedMessages;
use super::phase::Writer;
use super::record::ConversationRecord;
use super::saved::Paused;
use super::slot::{self, Slot, is_answer};
use crate::message::{Message, MessageId, Messages, Usage};

/// The record of a loop that writes to it, with the messages as that loop has them. A message is
/// recorded here before any event about it is emitted.
///
/// The tools of a turn run in parallel, and each result is recorded where it is created: a call
/// that is dropped while the consumer is slow keeps its result.
#[derive(Debug, Default)]
pub(crate) struct Transcript(ConversationRecord);

impl Transcript {
    /// Claims the record for the loop of an agent, whose messages are those that
    /// [`begin`](ConversationRecord::begin) returns. Of two concurrent loops the second gets its
    /// own record, which starts with these messages.
    pub(crate) fn new(
        record: &ConversationRecord,
        agent: &str,
        request: &Messages,
        joined: Option<usize>,
    ) -> Self {
        let mut state = record.lock();
        if state.phase.writer().is_some() {
            // The ids of the two must differ.
            let prefix = state.ids.mint().to_shared();
            drop(state);
            let own = ConversationRecord::with_request(request);
            let mut state = own.lock();
            state.ids.prefix = Some(prefix);
            state.phase.write(Writer::default());
            drop(state);
            return Self(own);
        }
        let messages = state.begin(agent, request, joined);
        // An agent that joins has a request of its own in place of the messages before it.
        let own = joined.map(|_| messages);
        state.phase.write(Writer::new(own));
        drop(state);
        Self(record.clone())
    }

    /// Claims the record once more for the loop of an agent that has handed the conversation to
    /// another and has it again. These are all messages since.
    pub(crate) fn reopened(record: &ConversationRecord, messages: OrderedMessages) -> Self {
        record.set(messages.clone());
        record.lock().phase.write(Writer::new(Some(messages)));
        Self(record.clone())
    }

    /// Returns the messages as the model receives them: in the order of calls.
    pub(crate) fn messages(&self) -> Messages {
        self.read(Messages::clone)
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Messages) -> T) -> T {
        read(self.0.lock().of_loop().in_call_order())
    }

    pub(crate) fn ordered(&self) -> OrderedMessages {
        self.0.lock().of_loop().clone()
    }

    pub(crate) fn has(&self, id: &MessageId) -> bool {
        let state = self.0.lock();
        let mut messages = state.messages.arrived().iter();
        messages.any(|message| message.id() == Some(id))
    }

    /// Returns the id of the next message, and the messages before it as the model receives them.
    pub(crate) fn begin_answer(&self) -> (MessageId, Messages) {
        let mut state = self.0.lock();
        let id = state.ids.mint();
        (id, state.of_loop().in_call_order().clone())
    }

    /// Adds a message that is no result.
    pub(crate) fn push(&self, message: Message) {
        self.0.lock().push(message);
    }

    /// Adds results of calls of the last turn.
    pub(crate) fn answer(&self, results: &[(CallName, Message)]) {
        let state = &mut *self.0.lock();
        for (_, result) in results {
            state.push(result.clone());
        }
        state.order_last(results.len());
    }

    pub(crate) fn begin_turn(&self, calls: impl Iterator<Item = CallName>) {
        let state = &mut *self.0.lock();
        state.calls.clear();
        state.calls.extend(calls.map(|call| (call, Slot::Open)));
    }

    /// Records that a call has failed its run, with this result, and returns the results. A call in
    /// which an agent works gets none: it continues when the run is resumed.
    pub(crate) fn fail(&self, call: usize, answer: Message) -> Vec<Message> {
        let state = &mut *self.0.lock();
        let Some((name, slot)) = state.calls.get(call) else {
            return Vec::new();
        };
        let slot = match slot.answers() {
            [] if state.has_agent_in(name) => Slot::Open,
            [] => Slot::Answered(answer),
            _ => slot.clone(),
        };
        let answers = slot.answers().to_vec();
        state.calls[call].1 = slot;
        answers
    }

    /// Records the state of a call. Once it has a result, the conversation inside it is removed.
    pub(crate) fn keep(&self, call: usize, slot: Slot) {
        self.0.lock().keep(call, slot);
    }

    /// Ends the turn. Returns the results of calls that were dropped while running, and whether all
    /// calls of the turn have a result.
    pub(crate) fn end_turn(&self) -> (Vec<(CallName, Message)>, bool) {
        let state = &mut *self.0.lock();
        let mut calls = std::mem::take(&mut state.calls);
        let stopped = slot::stop(&mut calls, |call| state.has_agent_in(call));
        let mut slots = calls.iter().map(|(_, slot)| slot);
        // There are none if another run has begun in this conversation.
        let are_answered = !calls.is_empty()
            && slots.all(|slot| matches!(slot, Slot::Answered(answer) if is_answer(answer)));
        let before = state.messages.len();
        for message in slot::settled(&calls, state.messages.arrived().holds_messages()) {
            state.push(message);
        }
        state.order_last(state.messages.len() - before);
        // For the next turn.
        calls.clear();
        state.calls = calls;
        (stopped, are_answered)
    }

    /// Records how far the agent that continues has come.
    pub(crate) fn pause(&self, iterations: u32, usage: Usage) {
        let state = &mut *self.0.lock();
        state.progress = state.head.paused.clone().map(|paused| Paused {
            iterations,
            usage,
            ..paused
        });
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        self.0.lock().phase.end_writing();
    }
}
