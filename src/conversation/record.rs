//! A conversation while agents work on it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use super::call_name::CallName;
use super::ids::IdMint;
use super::ordered_messages::OrderedMessages;
use super::phase::Phase;
use super::saved::{Head, Paused, Saved};
use super::slot::{self, Slot};
use crate::lock::lock;
use crate::message::{Message, Messages, Role};

/// A conversation while agents work on it: its messages, which agent continues, and the
/// conversations of agents inside its tool calls or running in parallel. Clones share it.
///
/// Agents record each message before any event about it is emitted. The record is therefore
/// complete however they end: with a response, with an error, or dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConversationRecord(Arc<Mutex<RecordState>>);

#[derive(Debug, Default)]
pub(super) struct RecordState {
    pub(super) phase: Phase,
    /// The messages, except the results of the turn that runs.
    pub(super) messages: OrderedMessages,
    /// Messages from this index on were added in this run.
    new_from: usize,
    /// The request of the agent that opened it.
    request: Option<Messages>,
    /// The saved data beside the messages, without the nested conversations.
    pub(super) head: Head,
    /// The calls of the current turn, in the model's order.
    pub(super) calls: Vec<(CallName, Slot)>,
    pub(super) nested: BTreeMap<String, ConversationRecord>,
    pub(super) ids: IdMint,
    /// The conversation that it was restored from.
    saved: Option<Arc<Saved>>,
    /// The number of earlier runs.
    turn: u64,
    /// The progress of the agent that continues, since its loop has ended.
    pub(super) progress: Option<Paused>,
    /// The agent whose loop responded last, and the request that it responded to.
    responded: Option<(Arc<str>, Messages)>,
}

impl RecordState {
    /// Returns all messages, with the current turn closed as if it had been dropped.
    fn closed(&self) -> OrderedMessages {
        let mut messages = self.messages.clone();
        if self.calls.is_empty() {
            return messages;
        }
        let mut calls = self.calls.clone();
        slot::stop(&mut calls, |call| self.has_agent_in(call));
        for message in slot::settled(&calls, self.messages.arrived().holds_messages()) {
            messages.push(message);
        }
        messages.order_last(messages.len() - self.messages.len());
        messages
    }

    /// Returns the messages of the loop that writes to it.
    pub(super) fn of_loop(&self) -> &OrderedMessages {
        let own = self.phase.writer().and_then(|writer| writer.own.as_ref());
        own.unwrap_or(&self.messages)
    }

    /// Adds a message to the conversation, and to the loop's own list if it has one.
    pub(super) fn push(&mut self, message: Message) {
        if let Some(own) = self.own_of_loop() {
            own.push(message.clone());
        }
        self.messages.push(message);
    }

    /// Puts the results that were added last in order.
    pub(super) fn order_last(&mut self, added: usize) {
        if let Some(own) = self.own_of_loop() {
            own.order_last(added);
        }
        self.messages.order_last(added);
    }

    fn own_of_loop(&mut self) -> Option<&mut OrderedMessages> {
        self.phase.writer_mut()?.own.as_mut()
    }

    /// Returns the head of the saved form with this many messages.
    fn head(&self, length: usize) -> Head {
        let mut head = self.head.clone();
        head.length = length;
        head.next_id = self.ids.next;
        if let Some(progress) = &self.progress {
            head.paused = Some(progress.clone());
        }
        for (holder, nested) in &self.nested {
            head.nested.insert(holder.clone(), nested.save());
        }
        head
    }

    /// Replaces all messages. The loop that writes to it, if there is one, keeps its own.
    fn replace(&mut self, messages: OrderedMessages) {
        let earlier = std::mem::replace(&mut self.messages, messages);
        if let Some(writer) = self.phase.writer_mut() {
            writer.own.get_or_insert(earlier);
        }
        self.calls.clear();
    }

    pub(super) fn begin(
        &mut self,
        agent: &str,
        request: &Messages,
        joined: Option<usize>,
    ) -> OrderedMessages {
        // A turn that was dropped is closed first: what its calls have brought is part of the
        // conversation.
        self.replace(self.closed());
        let from = joined.unwrap_or(self.new_from);
        if let Some((by, earlier)) = &self.responded
            && **by == *agent
            && earlier != request
        {
            // The request is a different one, so the messages since are answers to another.
            let mut remaining = std::mem::take(&mut self.messages).into_arrived();
            remaining.truncate(from);
            self.messages = OrderedMessages::new(remaining, self.new_from);
        }
        let mut messages = request.clone();
        messages.extend(self.messages.arrived().range(from).cloned());
        // Callbacks may have added messages to the request.
        self.ids.identify_added(&mut messages);
        let messages = OrderedMessages::new(messages, request.len());
        if joined.is_none() {
            self.messages = messages.clone();
            self.new_from = request.len();
        }
        messages
    }

    /// Returns whether a user message was added since it was saved, however it came into the
    /// request.
    fn has_new_user_message(&self, request: &Messages) -> bool {
        let Some(saved) = &self.saved else {
            return false;
        };
        let Some(last) = last_but_results(request) else {
            return false;
        };
        last.role() == Role::User && last_but_results(&saved.messages) != Some(last)
    }

    pub(super) fn has_agent_in(&self, call: &CallName) -> bool {
        !self.nested.is_empty() && self.holders_in(call).next().is_some()
    }

    pub(super) fn keep(&mut self, call: usize, slot: Slot) {
        let Some((_, current)) = self.calls.get_mut(call) else {
            return;
        };
        let is_answered = !slot.answers().is_empty();
        *current = slot;
        if is_answered && !self.nested.is_empty() {
            let holders: Vec<_> = self.holders_in(&self.calls[call].0).cloned().collect();
            for holder in &holders {
                self.nested.remove(holder);
            }
        }
    }

    /// Returns the keys of the conversations of the agents that work in this call.
    fn holders_in(&self, call: &CallName) -> impl Iterator<Item = &String> {
        let path = format!("{call}/");
        // They are next to each other: agents may work in thousands of other calls.
        let from = (Bound::Included(path.as_str()), Bound::Unbounded);
        let following = self.nested.range::<str, _>(from);
        let inside =
            following.map_while(move |(holder, _)| Some((holder, holder.strip_prefix(&*path)?)));
        // Deeper ones belong to a call of another agent.
        inside
            .filter(|(_, agent)| !agent.contains('/'))
            .map(|(holder, _)| holder)
    }
}

fn last_but_results(messages: &Messages) -> Option<&Message> {
    messages
        .iter()
        .rev()
        .find(|message| message.role() != Role::Tool)
}

impl ConversationRecord {
    /// Restores a conversation whose messages may have changed since it was saved.
    pub(crate) fn resuming(messages: Messages, head: Head) -> Self {
        let head = head.for_messages(&messages);
        Self::of(Arc::new(Saved { messages, head }))
    }

    /// Replaces the conversation by a saved one, which others that share the record see as well. A
    /// record that is in use is left alone, and another is returned.
    pub(crate) fn restart(&self, messages: Messages, head: Head, turn: u64) -> Self {
        let restarted = Self::resuming(messages, head).at_turn(turn);
        let mut state = self.lock();
        if state.phase.is_in_use() {
            return restarted;
        }
        *state = std::mem::take(&mut *restarted.lock());
        drop(state);
        self.clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RecordState> {
        lock(&self.0)
    }

    fn of(saved: Arc<Saved>) -> Self {
        let messages = saved.messages.clone();
        let mut head = saved.head.clone();
        let nested = std::mem::take(&mut head.nested).into_iter();
        let nested = nested.map(|(holder, saved)| (holder, Self::of(Arc::new(saved))));
        let new_from = messages.len();
        let state = RecordState {
            new_from,
            // Results may have been added since it was saved.
            messages: OrderedMessages::new(messages, new_from),
            ids: IdMint {
                prefix: None,
                next: head.next_id,
                ..IdMint::default()
            },
            head,
            nested: nested.collect(),
            saved: Some(saved),
            ..RecordState::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Creates the conversation of an agent with its caller's request.
    pub(crate) fn with_request(messages: &Messages) -> Self {
        let record = Self::default();
        record.expect(messages);
        let mut state = record.lock();
        state.request = Some(messages.clone());
        state.head.shared = messages.len();
        drop(state);
        record
    }

    /// Sets the number of earlier runs.
    pub(crate) fn at_turn(self, turn: u64) -> Self {
        self.lock().turn = turn;
        self
    }

    /// Returns the number of this run, from 1 on.
    pub(crate) fn turn(&self) -> u64 {
        self.lock().turn.saturating_add(1)
    }

    /// Returns the initial record, for another run.
    pub(crate) fn anew(&self) -> Self {
        let state = self.lock();
        let anew = state.saved.clone().map(Self::of).unwrap_or_default();
        anew.at_turn(state.turn)
    }

    /// Returns the initial record for changed messages.
    pub(crate) fn with_messages(&self, messages: &Messages) -> Self {
        let state = self.lock();
        let head = state.saved.as_ref().map(|saved| saved.head.clone());
        Self::resuming(messages.clone(), head.unwrap_or_default()).at_turn(state.turn)
    }

    /// Opens the record for an agent with this request, whose messages get ids. The agent continues
    /// where an earlier call with the same request stopped, unless that call succeeded.
    ///
    /// Of two concurrent calls the second gets its own record.
    pub(crate) fn open(
        &self,
        request: &mut Messages,
        prefix: impl FnOnce() -> Arc<str>,
    ) -> (Self, Open) {
        let mut state = self.lock();
        if state.phase.is_in_use() {
            drop(state);
            return self.anew().open(request, prefix);
        }
        let earlier = state.request.as_ref();
        let is_other = earlier.is_some_and(|earlier| earlier != request);
        if is_other || matches!(state.phase, Phase::Over) {
            // Another conversation begins. Ids go on, since the messages of both can be in one
            // stream.
            *state = RecordState {
                saved: state.saved.take(),
                turn: state.turn,
                ids: std::mem::take(&mut state.ids),
                ..RecordState::default()
            };
        }
        state.ids.prefix.get_or_insert_with(prefix);
        if let Some(earlier) = &state.request {
            // The same request again: its messages are the same ones.
            *request = earlier.clone();
        } else {
            state.ids.open(request);
            if state.has_new_user_message(request) {
                state.head = Head::default();
                state.nested.clear();
            }
            state.request = Some(request.clone());
        }
        let turn = state.turn.saturating_add(1);
        state.head.paused.get_or_insert_with(|| Paused {
            turn,
            ..Paused::at(request.len())
        });
        state.phase = Phase::Open;
        drop(state);
        self.expect(request);
        (self.clone(), Open(self.clone()))
    }

    pub(crate) fn expect(&self, request: &Messages) {
        let state = &mut *self.lock();
        if state.messages.len() == state.new_from {
            state.messages = OrderedMessages::new(request.clone(), request.len());
            state.new_from = request.len();
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Notes which ids messages of the request have that this conversation would mint.
    pub(crate) fn note_taken(&self, messages: &Messages) {
        self.lock().ids.note_taken(messages);
    }

    /// Gives an id to each of these messages that has none, since a callback or a layer has added
    /// it.
    pub(crate) fn identify(&self, messages: &mut Messages) {
        if !messages.note_identified() {
            self.lock().ids.identify_added(messages);
        }
    }

    /// Returns whether it, or a conversation that it holds, has open calls.
    pub(crate) fn has_open_calls(&self) -> bool {
        let state = self.lock();
        !state.nested.is_empty() || state.closed().in_call_order().open_calls().next().is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().messages.len()
    }

    /// Returns the conversation of an agent with this request, including its earlier messages.
    /// `joined` is the number of messages when it joined, if it did not open the conversation.
    pub(crate) fn begin(
        &self,
        agent: &str,
        request: &Messages,
        joined: Option<usize>,
    ) -> OrderedMessages {
        self.lock().begin(agent, request, joined)
    }

    pub(crate) fn responded(&self, agent: Arc<str>, request: Messages) {
        self.lock().responded = Some((agent, request));
    }

    pub(crate) fn set(&self, messages: OrderedMessages) {
        self.lock().replace(messages);
    }

    /// Returns the request of the agent that opened it; for a saved conversation, all messages.
    pub(crate) fn request(&self) -> Messages {
        let state = self.lock();
        let request = state.request.clone();
        request.unwrap_or_else(|| state.closed().into_arrived())
    }

    /// Returns the agent that continues.
    pub(crate) fn turn_of(&self) -> Option<Arc<str>> {
        self.lock().head.turn_of.clone()
    }

    /// Makes the agent at this path the one that continues, from this message on.
    pub(crate) fn give_turn(&self, path: Arc<str>, from: usize) {
        let state = &mut *self.lock();
        state.head.turn_of = Some(path);
        state.progress = None;
        if let Some(paused) = &mut state.head.paused {
            *paused = paused.begun_at(from);
        }
    }

    pub(crate) fn round(&self, path: &str) -> u32 {
        let state = self.lock();
        state.head.rounds.get(path).copied().unwrap_or_default()
    }

    pub(crate) fn begin_round(&self, path: Arc<str>, round: u32) {
        self.lock().head.rounds.insert(path, round);
    }

    /// Returns how far the agent that continues had come when the run paused.
    pub(crate) fn paused(&self) -> Option<Paused> {
        self.lock().head.paused.clone()
    }

    /// Returns whether this run goes on with an earlier one, which has paused.
    pub(crate) fn is_continuation(&self) -> bool {
        let state = self.lock();
        let paused = state.head.paused.as_ref();
        paused.is_some_and(|paused| paused.turn <= state.turn)
    }

    pub(crate) fn held(&self, at: &str) -> Option<Self> {
        self.lock().nested.get(at).cloned()
    }

    /// Returns the numbers of the conversations held at the numbered places of this name, in order.
    pub(crate) fn held_numbers(&self, at: &str) -> Vec<usize> {
        let state = self.lock();
        let holders = state.nested.keys();
        let numbers = holders.filter_map(|holder| {
            let number = holder.strip_prefix(at)?.strip_prefix('.')?;
            number.parse().ok()
        });
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn hold(&self, at: String, record: Self) {
        self.lock().nested.insert(at, record);
    }

    pub(crate) fn release(&self, at: &str) {
        self.lock().nested.remove(at);
    }

    /// Returns how many messages the caller's transcript has, and whether the agent has responded.
    pub(crate) fn shared_with_caller(&self) -> (usize, bool) {
        let state = self.lock();
        (state.head.shared, state.head.is_done)
    }

    pub(crate) fn share_with_caller(&self, count: usize) {
        self.lock().head.shared = count;
    }

    /// Takes the response that an agent gave before the resumed run, once.
    pub(crate) fn take_answer(&self) -> Option<Messages> {
        let state = &mut *self.lock();
        if !state.head.is_done || matches!(state.phase, Phase::Answered | Phase::Over) {
            return None;
        }
        state.phase.answer();
        Some(state.messages.in_call_order().clone())
    }

    /// Records the response of the agent that opened it.
    pub(crate) fn finish(&self, messages: OrderedMessages) {
        let state = &mut *self.lock();
        state.replace(messages);
        state.nested.clear();
        state.head = Head {
            // The caller may not have the response yet, so its part is kept.
            shared: state.head.shared,
            is_done: true,
            ..Head::default()
        };
        state.phase.answer();
    }

    pub(crate) fn save(&self) -> Saved {
        let state = self.lock();
        let messages = state.closed().in_call_order().clone();
        let head = state.head(messages.len());
        Saved { messages, head }
    }

    pub(crate) fn head(&self) -> Head {
        let state = self.lock();
        state.head(state.closed().len())
    }

    /// Returns the head of the saved form for a run that has not begun.
    pub(crate) fn head_before_run(&self) -> Head {
        let state = self.lock();
        let mut head = state.head(state.closed().len());
        // The progress of a run that has begun since is not that of the one that it was restored
        // from.
        let restored = state.saved.as_ref().map(|saved| saved.head.clone());
        let restored = restored.unwrap_or_default();
        head.paused = restored.paused;
        head.rounds = restored.rounds;
        head
    }
}

/// An agent's use of the conversation.
#[derive(Debug)]
pub(crate) struct Open(ConversationRecord);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().phase.close();
    }
}
