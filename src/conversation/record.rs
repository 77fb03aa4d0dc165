//! A conversation while agents work on it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use super::call_name::CallName;
use super::saved::{Head, Paused, Saved};
use super::slot::{self, Slot};
use crate::lock::lock;
use crate::message::{Message, MessageId, Messages, Role, Usage};

/// A conversation while agents work on it: its messages, which agent continues, and the
/// conversations of agents inside its tool calls or running in parallel. Clones share it.
///
/// Agents record each message before any event about it is emitted. The record is therefore
/// complete however they end: with a response, with an error, or dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// All messages, except the results of the turn that runs.
    messages: Messages,
    /// Messages from this index on were added in this run.
    new_from: usize,
    /// The request of the agent that opened it.
    request: Option<Messages>,
    /// The saved data beside the messages, without the nested conversations.
    head: Head,
    /// The calls of the current turn, in the model's order.
    calls: Vec<(CallName, Slot)>,
    nested: BTreeMap<String, Record>,
    ids: Ids,
    /// The conversation that it was restored from.
    saved: Option<Arc<Saved>>,
    /// The number of earlier runs.
    turn: u64,
    /// How far the agent has come that continues, since its loop has ended.
    progress: Option<Paused>,
    /// The agent whose loop responded last, and the request that it responded to.
    responded: Option<(Arc<str>, Messages)>,
}

/// Who works on a conversation; see the table in the [module](super).
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Open,
    Writing(Writer),
    Detached(Writer),
    Answered,
    Over,
}

/// The view of the loop that writes to a conversation.
#[derive(Debug, Default)]
struct Writer {
    /// The loop's request and the messages since, if they differ from the conversation: callbacks
    /// may have changed the request.
    messages: Option<Messages>,
    /// The view in the order of calls, if results came in another: those of a resumed turn come
    /// after the ones that it had.
    ordered: Option<Messages>,
    /// The agent has given its response while its loop was writing.
    has_answered: bool,
}

/// Mints the ids of the conversation's messages.
#[derive(Debug, Default)]
struct Ids {
    /// The part that they share. `None` until an agent opens the conversation.
    prefix: Option<Arc<str>>,
    /// The number of the next one. It only grows, also in later runs of the conversation: an id
    /// that was discarded is not used again.
    next: u32,
}

impl Ids {
    fn mint(&mut self) -> MessageId {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        self.with_number(number)
    }

    fn with_number(&mut self, number: u32) -> MessageId {
        // A conversation that no agent has opened is in no stream and in no store.
        let prefix = self.prefix.get_or_insert_with(|| Arc::from("draft"));
        MessageId::minted(prefix, number)
    }

    /// Passes over the numbers of these messages, of a conversation whose next number is unknown.
    fn pass_over(&mut self, messages: &Messages) {
        for message in messages {
            // A client chooses the ids of its own messages, and no calls hang on those.
            if message.role() == Role::Assistant
                && let Some(number) = message.id().and_then(MessageId::number)
            {
                self.next = self.next.max(number.saturating_add(1));
            }
        }
    }

    /// Gives an id to each message that has none.
    fn identify(&mut self, messages: &mut Messages) {
        for index in 0..messages.len() {
            if messages[index].id().is_none() {
                let id = self.mint();
                if let Some(message) = messages.get_mut(index) {
                    message.set_id(id);
                }
            }
        }
    }
}

impl Phase {
    fn writer(&self) -> Option<&Writer> {
        match self {
            Self::Writing(writer) | Self::Detached(writer) => Some(writer),
            Self::Idle | Self::Open | Self::Answered | Self::Over => None,
        }
    }

    fn writer_mut(&mut self) -> Option<&mut Writer> {
        match self {
            Self::Writing(writer) | Self::Detached(writer) => Some(writer),
            Self::Idle | Self::Open | Self::Answered | Self::Over => None,
        }
    }

    /// Returns whether an agent or a loop works on the conversation.
    fn is_in_use(&self) -> bool {
        match self {
            Self::Idle | Self::Over => false,
            Self::Open | Self::Answered | Self::Writing(_) | Self::Detached(_) => true,
        }
    }

    /// A loop begins to write.
    fn write(&mut self, writer: Writer) {
        *self = match self {
            Self::Idle | Self::Over | Self::Detached(_) => Self::Detached(writer),
            Self::Open | Self::Answered | Self::Writing(_) => Self::Writing(writer),
        };
    }

    /// The loop that writes has ended.
    fn end_writing(&mut self) {
        *self = match std::mem::take(self) {
            Self::Writing(writer) if writer.has_answered => Self::Answered,
            Self::Writing(_) => Self::Open,
            Self::Detached(writer) if writer.has_answered => Self::Over,
            Self::Detached(_) => Self::Idle,
            other => other,
        };
    }

    /// The agent that opened the conversation has given its response.
    fn answer(&mut self) {
        match self {
            Self::Writing(writer) | Self::Detached(writer) => writer.has_answered = true,
            Self::Open | Self::Answered => *self = Self::Answered,
            Self::Idle | Self::Over => *self = Self::Over,
        }
    }

    /// The agent that opened the conversation has ended.
    fn close(&mut self) {
        *self = match std::mem::take(self) {
            Self::Open => Self::Idle,
            Self::Answered => Self::Over,
            // Its loop was moved elsewhere, and goes on there.
            Self::Writing(writer) => Self::Detached(writer),
            other => other,
        };
    }
}

impl State {
    /// Returns all messages, with the current turn closed as if it had been dropped.
    fn messages(&self) -> Messages {
        let mut messages = self.messages.clone();
        let mut calls = self.calls.clone();
        slot::stop(&mut calls, |call| self.has_agent_in(call));
        slot::settle(&calls, &mut messages, |messages| messages, Messages::push);
        messages
    }

    /// Returns the messages of the loop that writes to it, in the order in which they came.
    fn chronological(&self) -> &Messages {
        let own = self
            .phase
            .writer()
            .and_then(|writer| writer.messages.as_ref());
        own.unwrap_or(&self.messages)
    }

    /// Returns the messages as the loop that writes to it sends them to the model.
    fn ordered(&self) -> &Messages {
        let ordered = self
            .phase
            .writer()
            .and_then(|writer| writer.ordered.as_ref());
        ordered.unwrap_or(self.chronological())
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

    fn push(&mut self, message: Message) {
        if let Some(writer) = self.phase.writer_mut() {
            if let Some(messages) = &mut writer.messages {
                messages.push(message.clone());
            }
            if let Some(ordered) = &mut writer.ordered {
                ordered.push(message.clone());
            }
        }
        self.messages.push(message);
    }

    /// Puts the results of the last turn in order, after those from index `from` on were added.
    fn order(&mut self, from: usize) {
        let Some(ordered) = self.ordered().in_call_order(from) else {
            return;
        };
        if let Some(writer) = self.phase.writer_mut() {
            writer.ordered = Some(ordered);
        }
    }

    /// Replaces all messages. The loop that writes to it, if there is one, keeps its own view.
    fn replace(&mut self, messages: Messages) {
        let earlier = std::mem::replace(&mut self.messages, messages);
        if let Some(writer) = self.phase.writer_mut() {
            writer.messages.get_or_insert(earlier);
        }
        self.calls.clear();
    }

    /// Returns the conversation of an agent with this request, including its earlier messages.
    /// `joined` is the number of messages when it joined, if it did not open the conversation.
    fn begin(&mut self, agent: &str, request: &Messages, joined: Option<usize>) -> Messages {
        // A turn that was dropped is closed first: what its calls have brought is part of the
        // conversation.
        self.replace(self.messages());
        let from = joined.unwrap_or(self.new_from);
        if let Some((by, earlier)) = &self.responded
            && **by == *agent
            && earlier != request
        {
            // The request is a different one, so the messages since are answers to another.
            self.messages.truncate(from);
        }
        let mut messages = request.clone();
        messages.extend(self.messages.range(from).cloned());
        // Callbacks may have added messages to the request.
        self.ids.identify(&mut messages);
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

    /// Returns whether an agent works in this call.
    fn has_agent_in(&self, call: &CallName) -> bool {
        if self.nested.is_empty() {
            return false;
        }
        let call = call.to_string();
        self.nested.keys().any(|holder| is_in_call(holder, &call))
    }
}

/// Returns the last message that is no result of a tool.
fn last_but_results(messages: &Messages) -> Option<&Message> {
    messages
        .iter()
        .rev()
        .find(|message| message.role() != Role::Tool)
}

/// Returns whether a nested conversation belongs to an agent that works in this call.
fn is_in_call(holder: &str, call: &str) -> bool {
    holder
        .rsplit_once('/')
        .is_some_and(|(path, _)| path == call)
}

impl From<Saved> for Record {
    fn from(saved: Saved) -> Self {
        Self::of(Arc::new(saved))
    }
}

impl Record {
    /// Restores a conversation whose messages may have changed since it was saved.
    pub(crate) fn resuming(messages: Messages, head: Head) -> Self {
        let head = head.for_messages(&messages);
        Self::from(Saved { messages, head })
    }

    /// Replaces the conversation by a saved one, which others that share the record see as well. A
    /// record that is in use is left alone, and another is returned.
    pub(crate) fn restart(&self, messages: Messages, head: Head, turn: u64) -> Self {
        let restarted = Self::resuming(messages, head).at_turn(turn);
        let mut state = lock(&self.0);
        if state.phase.is_in_use() {
            return restarted;
        }
        *state = std::mem::take(&mut *lock(&restarted.0));
        drop(state);
        self.clone()
    }

    fn of(saved: Arc<Saved>) -> Self {
        let messages = saved.messages.clone();
        let mut head = saved.head.clone();
        let mut nested = BTreeMap::new();
        for (holder, saved) in std::mem::take(&mut head.nested) {
            nested.insert(holder, Self::from(saved));
        }
        let state = State {
            new_from: messages.len(),
            messages,
            ids: Ids {
                prefix: None,
                next: head.next_id,
            },
            head,
            nested,
            saved: Some(saved),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Creates the conversation of an agent with its caller's request.
    pub(crate) fn with_request(messages: &Messages) -> Self {
        let state = State {
            messages: messages.clone(),
            new_from: messages.len(),
            request: Some(messages.clone()),
            head: Head {
                shared: messages.len(),
                ..Head::default()
            },
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Sets the number of earlier runs.
    pub(crate) fn at_turn(self, turn: u64) -> Self {
        lock(&self.0).turn = turn;
        self
    }

    /// Returns the number of this run, from 1 on.
    pub(crate) fn turn(&self) -> u64 {
        lock(&self.0).turn.saturating_add(1)
    }

    /// Returns the initial record, for another run.
    pub(crate) fn anew(&self) -> Self {
        let state = lock(&self.0);
        let anew = state.saved.clone().map(Self::of).unwrap_or_default();
        anew.at_turn(state.turn)
    }

    /// Returns the initial record for changed messages.
    pub(crate) fn with_messages(&self, messages: &Messages) -> Self {
        let state = lock(&self.0);
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
        let mut state = lock(&self.0);
        if state.phase.is_in_use() {
            drop(state);
            return self.anew().open(request, prefix);
        }
        let is_other = match &state.request {
            Some(earlier) => earlier != request,
            None => false,
        };
        if is_other || matches!(state.phase, Phase::Over) {
            // Another conversation begins. Ids go on, since the messages of both can be in one
            // stream.
            *state = State {
                saved: state.saved.take(),
                turn: state.turn,
                ids: std::mem::take(&mut state.ids),
                ..State::default()
            };
        }
        state.ids.prefix.get_or_insert_with(prefix);
        if let Some(earlier) = &state.request {
            // The same request again: its messages are the same ones.
            *request = earlier.clone();
        } else {
            let is_first = state.ids.next == 0;
            if is_first {
                state.ids.pass_over(request);
            }
            state.ids.identify(request);
            if is_first {
                // The number of the first response does not depend on who has named the messages
                // before it. A conversation that is resumed goes on where it was.
                let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
                state.ids.next = state.ids.next.max(length);
            }
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

    /// Sets the expected request.
    pub(crate) fn expect(&self, request: &Messages) {
        let state = &mut *lock(&self.0);
        if state.messages.len() == state.new_from {
            state.messages = request.clone();
            state.new_from = request.len();
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Claims the record for the loop of an agent, as [`begin`](Self::begin) does. Of two
    /// concurrent loops the second gets its own record, which starts with these messages.
    pub(crate) fn write(
        &self,
        agent: &str,
        request: &Messages,
        joined: Option<usize>,
    ) -> Transcript {
        let mut state = lock(&self.0);
        if state.phase.writer().is_some() {
            // The ids of the two must differ.
            let prefix = state.ids.mint().to_shared();
            drop(state);
            let own = Self::with_request(request);
            {
                let mut state = lock(&own.0);
                state.ids.prefix = Some(prefix);
                state.phase.write(Writer::default());
            }
            return Transcript(own);
        }
        let messages = state.begin(agent, request, joined);
        let writer = Writer {
            ordered: messages.in_call_order(request.len()),
            messages: joined.map(|_| messages),
            has_answered: false,
        };
        state.phase.write(writer);
        drop(state);
        Transcript(self.clone())
    }

    /// Returns the id of the next message.
    pub(crate) fn mint(&self) -> MessageId {
        lock(&self.0).ids.mint()
    }

    /// Gives an id to each of these messages that has none.
    pub(crate) fn identify(&self, messages: &mut Messages) {
        if messages.iter().any(|message| message.id().is_none()) {
            lock(&self.0).ids.identify(messages);
        }
    }

    /// Returns the messages as seen by the loop that writes to it.
    pub(crate) fn messages(&self) -> Messages {
        self.read(Messages::clone)
    }

    /// Returns the same messages in the order in which they came.
    pub(crate) fn chronological(&self) -> Messages {
        lock(&self.0).chronological().clone()
    }

    /// Returns the messages as seen by the loop that writes to it, if they came in another order.
    pub(crate) fn ordered(&self) -> Option<Messages> {
        lock(&self.0).phase.writer()?.ordered.clone()
    }

    /// Reads the messages as seen by the loop that writes to it.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Messages) -> T) -> T {
        read(lock(&self.0).ordered())
    }

    /// Returns whether a message has this id.
    pub(crate) fn has(&self, id: &MessageId) -> bool {
        let state = lock(&self.0);
        state
            .messages
            .iter()
            .any(|message| message.id() == Some(id))
    }

    /// Returns whether it, or a conversation that it holds, has open calls.
    pub(crate) fn has_open_calls(&self) -> bool {
        let state = lock(&self.0);
        !state.nested.is_empty() || state.messages().open_calls().next().is_some()
    }

    /// Returns the number of messages.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).messages.len()
    }

    /// Returns the conversation of an agent with this request, including its earlier messages.
    /// `joined` is the number of messages when it joined, if it did not open the conversation.
    pub(crate) fn begin(&self, agent: &str, request: &Messages, joined: Option<usize>) -> Messages {
        lock(&self.0).begin(agent, request, joined)
    }

    /// Records that the loop of an agent with this request has responded.
    pub(crate) fn responded(&self, agent: Arc<str>, request: Messages) {
        lock(&self.0).responded = Some((agent, request));
    }

    /// Adds a message.
    pub(crate) fn push(&self, message: Message) {
        lock(&self.0).push(message);
    }

    /// Adds results of calls of the last turn.
    pub(crate) fn answer(&self, results: &[(CallName, Message)]) {
        let state = &mut *lock(&self.0);
        // Taken before the results are added: the turn that goes on ends here.
        let from = state.ordered().len();
        for (_, result) in results {
            state.push(result.clone());
        }
        state.order(from);
    }

    /// Replaces all messages.
    pub(crate) fn set(&self, messages: Messages) {
        lock(&self.0).replace(messages);
    }

    /// Returns the request of the agent that opened it; for a saved conversation, all messages.
    pub(crate) fn request(&self) -> Messages {
        let state = lock(&self.0);
        state.request.clone().unwrap_or_else(|| state.messages())
    }

    /// Returns the agent that continues.
    pub(crate) fn turn_of(&self) -> Option<Arc<str>> {
        lock(&self.0).head.turn_of.clone()
    }

    /// Makes the agent at this path the one that continues, from this message on.
    pub(crate) fn give_turn(&self, path: Arc<str>, from: usize) {
        let state = &mut *lock(&self.0);
        state.head.turn_of = Some(path);
        state.progress = None;
        if let Some(paused) = &mut state.head.paused {
            *paused = paused.begun_at(from);
        }
    }

    /// Returns the round of the team at this path.
    pub(crate) fn round(&self, path: &str) -> u32 {
        let state = lock(&self.0);
        state.head.rounds.get(path).copied().unwrap_or_default()
    }

    /// Records the round of the team at this path.
    pub(crate) fn begin_round(&self, path: Arc<str>, round: u32) {
        lock(&self.0).head.rounds.insert(path, round);
    }

    /// Returns how far the agent that continues had come when the run paused.
    pub(crate) fn paused(&self) -> Option<Paused> {
        lock(&self.0).head.paused.clone()
    }

    /// Records how far the agent that continues has come.
    pub(crate) fn pause(&self, iterations: u32, usage: Usage) {
        let state = &mut *lock(&self.0);
        state.progress = state.head.paused.clone().map(|paused| Paused {
            iterations,
            usage,
            ..paused
        });
    }

    /// Returns whether this run goes on with an earlier one, which has paused.
    pub(crate) fn is_continuation(&self) -> bool {
        let state = lock(&self.0);
        let paused = state.head.paused.as_ref();
        paused.is_some_and(|paused| paused.turn <= state.turn)
    }

    /// Starts a turn with these tool calls.
    pub(crate) fn begin_turn(&self, calls: impl Iterator<Item = CallName>) {
        let state = &mut *lock(&self.0);
        state.calls.clear();
        state.calls.extend(calls.map(|call| (call, Slot::Open)));
    }

    /// Records that a call has failed its run, with this result, and returns the results. A call in
    /// which an agent works gets none: it continues when the run is resumed.
    pub(crate) fn fail(&self, call: usize, answer: Message) -> Vec<Message> {
        let state = &mut *lock(&self.0);
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
        let state = &mut *lock(&self.0);
        let Some((name, current)) = state.calls.get_mut(call) else {
            return;
        };
        if !slot.answers().is_empty() && !state.nested.is_empty() {
            let call = name.to_string();
            state.nested.retain(|holder, _| !is_in_call(holder, &call));
        }
        *current = slot;
    }

    /// Ends the turn. Returns the results of calls that were dropped while running.
    pub(crate) fn end_turn(&self) -> Vec<(CallName, Message)> {
        let state = &mut *lock(&self.0);
        let mut calls = std::mem::take(&mut state.calls);
        let stopped = slot::stop(&mut calls, |call| state.has_agent_in(call));
        let from = state.ordered().len();
        slot::settle(&calls, state, |state| &state.messages, State::push);
        state.order(from);
        // For the next turn.
        calls.clear();
        state.calls = calls;
        stopped
    }

    /// Returns the conversation held at a place.
    pub(crate) fn held(&self, at: &str) -> Option<Self> {
        lock(&self.0).nested.get(at).cloned()
    }

    /// Returns the numbers of the conversations held at the numbered places of this name, in order.
    pub(crate) fn held_numbers(&self, at: &str) -> Vec<usize> {
        let state = lock(&self.0);
        let mut numbers = Vec::new();
        for holder in state.nested.keys() {
            let number = holder
                .strip_prefix(at)
                .and_then(|end| end.strip_prefix('.'));
            numbers.extend(number.and_then(|number| number.parse::<usize>().ok()));
        }
        numbers.sort_unstable();
        numbers
    }

    /// Holds a conversation at a place.
    pub(crate) fn hold(&self, at: String, record: Self) {
        lock(&self.0).nested.insert(at, record);
    }

    /// Removes the conversation held at a place.
    pub(crate) fn release(&self, at: &str) {
        lock(&self.0).nested.remove(at);
    }

    /// Returns how many messages the caller's transcript has, and whether the agent has responded.
    pub(crate) fn shared_with_caller(&self) -> (usize, bool) {
        let state = lock(&self.0);
        (state.head.shared, state.head.is_done)
    }

    /// Records how many messages the caller's transcript has.
    pub(crate) fn share_with_caller(&self, count: usize) {
        lock(&self.0).head.shared = count;
    }

    /// Takes the response that an agent gave before the resumed run, once.
    pub(crate) fn take_answer(&self) -> Option<Messages> {
        let state = &mut *lock(&self.0);
        if !state.head.is_done || matches!(state.phase, Phase::Answered | Phase::Over) {
            return None;
        }
        state.phase.answer();
        Some(state.messages.clone())
    }

    /// Records the response of the agent that opened it.
    pub(crate) fn finish(&self, messages: Messages) {
        let state = &mut *lock(&self.0);
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

    /// Returns the saved form.
    pub(crate) fn save(&self) -> Saved {
        let state = lock(&self.0);
        let messages = state.messages();
        let head = state.head(messages.len());
        let messages = messages.in_call_order(state.new_from).unwrap_or(messages);
        Saved { messages, head }
    }

    /// Returns the head of the saved form.
    pub(crate) fn head(&self) -> Head {
        let state = lock(&self.0);
        state.head(state.messages().len())
    }

    /// Returns the head of the saved form for a run that has not begun.
    pub(crate) fn head_before_run(&self) -> Head {
        let state = lock(&self.0);
        let mut head = state.head(state.messages().len());
        // The progress of a run that has begun since is not that of the one that it was restored from.
        let restored = state.saved.as_ref().map(|saved| &saved.head);
        head.paused = restored.and_then(|restored| restored.paused.clone());
        head.rounds = restored
            .map(|restored| restored.rounds.clone())
            .unwrap_or_default();
        head
    }
}

/// The record of a loop that writes to it: the messages as the model receives them. A message is
/// recorded here before any event about it is emitted.
///
/// The tools of a turn run in parallel, and each result is recorded where it is created: a call
/// that is dropped while the consumer is slow keeps its result.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Record);

impl Deref for Transcript {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        lock(&self.0.0).phase.end_writing();
    }
}

/// An agent's use of the conversation.
#[derive(Debug)]
pub(crate) struct Open(Record);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0.0).phase.close();
    }
}
