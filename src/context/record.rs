//! Records a conversation while agents work on it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use super::conversation::{Conversation, Rest, Suspended};
use super::slot::{self, Slot};
use crate::lock::lock;
use crate::message::{Message, Messages, Role};

/// The current conversation: its messages, which agent continues, and the conversations of agents
/// inside its tool calls or running in parallel.
///
/// Agents record each message before any event about it is emitted. The record is therefore
/// complete however they end: with a response, with an error, or dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    messages: Messages,
    /// The view of the loop that writes to it, if it differs: the loop's request, and the messages
    /// since.
    told: Option<Messages>,
    /// That view with the results of a turn in the order of its calls, if they came in another:
    /// those of a resumed turn come after the ones that it had.
    ordered: Option<Messages>,
    /// Messages from this index on were added in this run.
    new_from: usize,
    /// The request of the agent that opened it.
    asked: Option<Messages>,
    /// The remaining saved data.
    rest: Rest,
    /// The calls of the current turn, in the model's order, by id.
    calls: Vec<(Arc<str>, Slot)>,
    nested: BTreeMap<String, Record>,
    /// How often each call id has occurred; computed on first use.
    ids: Option<BTreeMap<Arc<str>, u32>>,
    /// Whether the ids of the last turn's calls are their names, too.
    are_names: bool,
    /// The conversation that it was restored from.
    origin: Option<Arc<Conversation>>,
    /// The number of earlier runs.
    turn: u64,
    /// The agent whose loop responded last, and its request.
    answered: Option<(Arc<str>, Messages)>,
    is_open: bool,
    is_over: bool,
    /// Whether a loop is writing to it.
    is_written: bool,
}

impl Kept {
    /// Returns all messages, with the current turn closed as if it had been dropped.
    fn messages(&self) -> Messages {
        let mut messages = self.messages.clone();
        let mut calls = self.calls.clone();
        slot::stop(&mut calls, |id| self.holds_in(id));
        slot::settle(&calls, &mut messages, |messages| messages, Messages::push);
        messages
    }

    /// Returns the messages of the loop that writes to it, in the order in which they came.
    fn told(&self) -> &Messages {
        self.told.as_ref().unwrap_or(&self.messages)
    }

    /// Returns the messages as seen by the loop that writes to it.
    fn seen(&self) -> &Messages {
        self.ordered.as_ref().unwrap_or(self.told())
    }

    /// Returns what is saved beside this many messages.
    fn suspended(&self, length: usize) -> Suspended {
        let nested = self
            .nested
            .iter()
            .map(|(key, it)| (key.clone(), it.save()))
            .collect();
        Suspended {
            rest: Rest {
                length,
                ..self.rest.clone()
            },
            nested,
        }
    }

    fn push(&mut self, message: Message) {
        if message.tool_calls().next().is_some() {
            let ids = self.ids();
            let mut are_names = true;
            for call in message.tool_calls() {
                are_names &= count(ids, &call.id) == 1 && is_name(&call.id);
            }
            self.are_names = are_names;
        }
        if let Some(told) = &mut self.told {
            told.push(message.clone());
        }
        if let Some(ordered) = &mut self.ordered {
            ordered.push(message.clone());
        }
        self.messages.push(message);
    }

    /// Puts the results of the last turn in order, after those from index `from` on were added.
    fn order(&mut self, from: usize) {
        if let Some(ordered) = self.seen().in_call_order(from) {
            self.ordered = Some(ordered);
        }
    }

    /// Replaces all messages. The loop that writes to it, if there is one, keeps its own view.
    fn replace(&mut self, messages: Messages) {
        let earlier = std::mem::replace(&mut self.messages, messages);
        if self.is_written {
            self.told.get_or_insert(earlier);
        }
        self.calls.clear();
        self.are_names = false;
    }

    /// Returns the conversation of an agent with this request, including its earlier messages.
    /// `joined` is the number of messages when it joined, if it did not open the conversation.
    fn begin(&mut self, agent: &str, asked: &Messages, joined: Option<usize>) -> Messages {
        self.replace(self.messages());
        self.ids = None;
        let from = joined.unwrap_or(self.new_from);
        let has_answered = self.answered.as_ref().filter(|(by, _)| **by == *agent);
        if has_answered.is_some_and(|(_, earlier)| earlier != asked) {
            // The request is a different one.
            self.messages.truncate(from);
        }
        let mut messages = asked.clone();
        messages.extend(self.messages.range(from).cloned());
        if joined.is_none() {
            (self.messages, self.new_from) = (messages.clone(), asked.len());
        }
        messages
    }

    /// Returns whether a user message was added since it was saved, however it came into the
    /// request.
    fn has_spoken(&self, asked: &Messages) -> bool {
        let last = |messages: &Messages| {
            messages
                .iter()
                .rev()
                .find(|message| message.role() != Role::Tool)
                .cloned()
        };
        let is_users = |message: &Message| message.role() == Role::User;
        let saved = self.origin.as_ref().map(|origin| last(&origin.messages));
        saved.is_some_and(|saved| {
            last(asked)
                .filter(is_users)
                .is_some_and(|it| saved != Some(it))
        })
    }

    /// Returns a name for a call of the last turn that is unique in the conversation: some
    /// providers reuse ids across turns.
    fn name_call(&mut self, id: &Arc<str>) -> Arc<str> {
        if self.are_names {
            return id.clone();
        }
        let number = self.ids().get(id).copied().unwrap_or(1);
        if number < 2 && is_name(id) {
            return id.clone();
        }
        // Escaped, to be distinct from path steps, from other numbers, and from keys of a call's
        // data.
        let mut name = id
            .replace('%', "%25")
            .replace('/', "%2F")
            .replace('#', "%23");
        name = name.replace(' ', "%20");
        if number > 1 {
            name.push_str(&format!("#{number}"));
        }
        name.into()
    }

    /// Returns how often each call id has occurred.
    fn ids(&mut self) -> &mut BTreeMap<Arc<str>, u32> {
        self.ids.get_or_insert_with(|| {
            let mut ids = BTreeMap::new();
            for call in self.messages.iter().flat_map(Message::tool_calls) {
                count(&mut ids, &call.id);
            }
            ids
        })
    }

    /// Returns whether an agent works in this call.
    fn holds_in(&self, call: &str) -> bool {
        self.nested.keys().any(|held| is_held_in(held, call))
    }
}

/// Counts a call id, and returns how often it has occurred.
fn count(ids: &mut BTreeMap<Arc<str>, u32>, id: &Arc<str>) -> u32 {
    let number = ids.entry(id.clone()).or_default();
    *number += 1;
    *number
}

/// Returns whether an id is distinct from path steps, from numbers, and from keys of a call's data.
fn is_name(id: &str) -> bool {
    !id.bytes()
        .any(|byte| matches!(byte, b'%' | b'/' | b'#' | b' '))
}

/// Returns whether a conversation belongs to an agent that works in this call.
fn is_held_in(held: &str, call: &str) -> bool {
    held.rsplit_once('/').is_some_and(|(path, _)| path == call)
}

impl From<Conversation> for Record {
    fn from(conversation: Conversation) -> Self {
        Self::of(Arc::new(conversation))
    }
}

impl Record {
    /// Restores a conversation whose messages may have changed since it was saved.
    pub(crate) fn resuming(messages: Messages, suspended: Suspended) -> Self {
        let suspended = suspended.or_nothing(&messages);
        Self::from(Conversation {
            messages,
            suspended,
        })
    }

    /// Puts a saved conversation in the place of what it has, which others that share the record
    /// see as well. A record that is in use is left alone, and another is returned.
    pub(crate) fn restart(&self, messages: Messages, suspended: Suspended, turn: u64) -> Self {
        let restarted = Self::resuming(messages, suspended).at_turn(turn);
        let mut kept = lock(&self.0);
        if kept.is_open || kept.is_written {
            return restarted;
        }
        *kept = std::mem::take(&mut *lock(&restarted.0));
        drop(kept);
        self.clone()
    }

    fn of(origin: Arc<Conversation>) -> Self {
        let Conversation {
            messages,
            suspended: Suspended { rest, nested },
        } = (*origin).clone();
        let nested = nested
            .into_iter()
            .map(|(key, it)| (key, Self::from(it)))
            .collect();
        let new_from = messages.len();
        let origin = Some(origin);
        let kept = Kept {
            messages,
            new_from,
            rest,
            nested,
            origin,
            ..Kept::default()
        };
        Self(Arc::new(Mutex::new(kept)))
    }

    /// Creates the conversation of an agent with its caller's request.
    pub(crate) fn asking(messages: &Messages) -> Self {
        let rest = Rest {
            told: messages.len(),
            ..Rest::default()
        };
        let asked = Some(messages.clone());
        let (messages, new_from) = (messages.clone(), messages.len());
        let kept = Kept {
            messages,
            new_from,
            asked,
            rest,
            ..Kept::default()
        };
        Self(Arc::new(Mutex::new(kept)))
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
        let kept = lock(&self.0);
        let anew = kept.origin.clone().map(Self::of).unwrap_or_default();
        anew.at_turn(kept.turn)
    }

    /// Returns the initial record for changed messages.
    pub(crate) fn with_messages(&self, messages: &Messages) -> Self {
        let kept = lock(&self.0);
        let suspended = kept.origin.as_ref().map(|origin| origin.suspended.clone());
        Self::resuming(messages.clone(), suspended.unwrap_or_default()).at_turn(kept.turn)
    }

    /// Opens the record for an agent with this request. The agent continues where an earlier call
    /// with the same request stopped, unless that call succeeded.
    ///
    /// Of two concurrent calls the second gets its own record.
    pub(crate) fn open(&self, asked: &Messages) -> (Self, Open) {
        let mut kept = lock(&self.0);
        if kept.is_open || kept.is_written {
            drop(kept);
            return self.anew().open(asked);
        }
        if kept.is_over || kept.asked.as_ref().is_some_and(|earlier| earlier != asked) {
            let (origin, turn) = (kept.origin.take(), kept.turn);
            *kept = Kept {
                origin,
                turn,
                ..Kept::default()
            };
        }
        if kept.asked.is_none() && kept.has_spoken(asked) {
            (kept.rest, kept.nested) = Default::default();
        }
        kept.asked = Some(asked.clone());
        kept.is_open = true;
        drop(kept);
        self.expect(asked);
        (self.clone(), Open(self.clone()))
    }

    /// Sets the expected request.
    pub(crate) fn expect(&self, asked: &Messages) {
        let kept = &mut *lock(&self.0);
        if kept.messages.len() == kept.new_from {
            (kept.messages, kept.new_from) = (asked.clone(), asked.len());
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Claims the record for the loop of an agent, as [`begin`](Self::begin) does. Of two
    /// concurrent loops the second gets its own record, which starts with these messages.
    pub(crate) fn write(&self, agent: &str, asked: &Messages, joined: Option<usize>) -> Transcript {
        let mut kept = lock(&self.0);
        if kept.is_written {
            drop(kept);
            let own = Self::asking(asked);
            lock(&own.0).is_written = true;
            return Transcript(own);
        }
        let messages = kept.begin(agent, asked, joined);
        kept.ordered = messages.in_call_order(asked.len());
        kept.told = joined.map(|_| messages);
        kept.is_written = true;
        drop(kept);
        Transcript(self.clone())
    }

    /// Returns the messages as seen by the loop that writes to it.
    pub(crate) fn messages(&self) -> Messages {
        self.read(Messages::clone)
    }

    /// Returns the same messages in the order in which they came.
    pub(crate) fn chronological(&self) -> Messages {
        lock(&self.0).told().clone()
    }

    /// Returns the messages as seen by the loop that writes to it, if they came in another order.
    pub(crate) fn ordered(&self) -> Option<Messages> {
        lock(&self.0).ordered.clone()
    }

    /// Reads the messages as seen by the loop that writes to it.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Messages) -> T) -> T {
        read(lock(&self.0).seen())
    }

    /// Returns whether it, or a conversation that it holds, has open calls.
    pub(crate) fn has_open_calls(&self) -> bool {
        let kept = lock(&self.0);
        !kept.nested.is_empty() || kept.messages().open_calls().next().is_some()
    }

    /// Returns the number of messages.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).messages.len()
    }

    /// Returns the conversation of an agent with this request, including its earlier messages.
    /// `joined` is the number of messages when it joined, if it did not open the conversation.
    pub(crate) fn begin(&self, agent: &str, asked: &Messages, joined: Option<usize>) -> Messages {
        lock(&self.0).begin(agent, asked, joined)
    }

    /// Records that the loop of an agent with this request has responded.
    pub(crate) fn answered(&self, agent: Arc<str>, asked: Messages) {
        lock(&self.0).answered = Some((agent, asked));
    }

    /// Adds a message.
    pub(crate) fn push(&self, message: Message) {
        lock(&self.0).push(message);
    }

    /// Adds results of calls of the last turn.
    pub(crate) fn answer(&self, answers: &[Message]) {
        let kept = &mut *lock(&self.0);
        let from = kept.seen().len();
        answers.iter().for_each(|answer| kept.push(answer.clone()));
        kept.order(from);
    }

    /// Returns a name for a call of the last turn that is unique in the conversation.
    pub(crate) fn name_call(&self, id: &Arc<str>) -> Arc<str> {
        lock(&self.0).name_call(id)
    }

    /// Replaces all messages.
    pub(crate) fn set(&self, messages: Messages) {
        let kept = &mut *lock(&self.0);
        if kept.messages.len() != messages.len() {
            kept.ids = None;
        }
        kept.replace(messages);
    }

    /// Returns the request of the agent that opened it; for a saved conversation, all messages.
    pub(crate) fn asked(&self) -> Messages {
        let kept = lock(&self.0);
        kept.asked.clone().unwrap_or_else(|| kept.messages())
    }

    /// Returns the agent that continues.
    pub(crate) fn turn_of(&self) -> Option<Arc<str>> {
        lock(&self.0).rest.turn_of.clone()
    }

    pub(crate) fn give_turn(&self, path: Arc<str>) {
        lock(&self.0).rest.turn_of = Some(path);
    }

    /// Starts a turn with these tool calls.
    pub(crate) fn begin_turn<'a>(&self, calls: impl Iterator<Item = &'a Arc<str>>) {
        let kept = &mut *lock(&self.0);
        kept.calls.clear();
        for id in calls {
            let name = kept.name_call(id);
            kept.calls.push((name, Slot::Open));
        }
    }

    /// Records that a call has failed its run, with this result, and returns the results. A call in
    /// which an agent works gets none: it continues when the run is resumed.
    pub(crate) fn fail(&self, call: usize, answer: Message) -> Vec<Message> {
        let kept = &mut *lock(&self.0);
        let Some((id, slot)) = kept.calls.get(call) else {
            return Vec::new();
        };
        let slot = match slot.answers() {
            [] if kept.holds_in(id) => Slot::Open,
            [] => Slot::Answered(answer),
            _ => slot.clone(),
        };
        let answers = slot.answers().to_vec();
        kept.calls[call].1 = slot;
        answers
    }

    /// Records the state of a call. Once it has a result, the conversation inside it is removed.
    pub(crate) fn keep(&self, call: usize, slot: Slot) {
        let kept = &mut *lock(&self.0);
        let Some((id, place)) = kept.calls.get_mut(call) else {
            return;
        };
        if !slot.answers().is_empty() {
            kept.nested.retain(|held, _| !is_held_in(held, id));
        }
        *place = slot;
    }

    /// Ends the turn. Returns the results of calls that were dropped while running.
    pub(crate) fn end_turn(&self) -> Vec<Message> {
        let kept = &mut *lock(&self.0);
        let mut calls = std::mem::take(&mut kept.calls);
        let stopped = slot::stop(&mut calls, |id| kept.holds_in(id));
        let from = kept.seen().len();
        slot::settle(&calls, kept, |kept| &kept.messages, Kept::push);
        kept.order(from);
        // For the next turn.
        calls.clear();
        kept.calls = calls;
        stopped
    }

    /// Returns the conversation held at a place.
    pub(crate) fn held(&self, at: &str) -> Option<Self> {
        lock(&self.0).nested.get(at).cloned()
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
    pub(crate) fn told(&self) -> (usize, bool) {
        let kept = lock(&self.0);
        (kept.rest.told, kept.rest.is_done)
    }

    /// Records how many messages the caller's transcript has.
    pub(crate) fn tell(&self, told: usize) {
        lock(&self.0).rest.told = told;
    }

    /// Takes the response that an agent gave before the resumed run, once.
    pub(crate) fn take_answer(&self) -> Option<Messages> {
        let kept = &mut *lock(&self.0);
        if !kept.rest.is_done || std::mem::replace(&mut kept.is_over, true) {
            return None;
        }
        Some(kept.messages.clone())
    }

    /// Records the response of the agent that opened it.
    pub(crate) fn finish(&self, messages: Messages) {
        let kept = &mut *lock(&self.0);
        let told = kept.rest.told;
        kept.replace(messages);
        kept.ids = None;
        kept.nested.clear();
        kept.rest = Rest {
            told,
            is_done: true,
            ..Rest::default()
        };
        kept.is_over = true;
    }

    /// Returns the saved form.
    pub(crate) fn save(&self) -> Conversation {
        let kept = lock(&self.0);
        let messages = kept.messages();
        let suspended = kept.suspended(messages.len());
        let messages = messages.in_call_order(kept.new_from).unwrap_or(messages);
        Conversation {
            messages,
            suspended,
        }
    }

    /// Returns the saved form without the messages.
    pub(crate) fn suspended(&self) -> Suspended {
        let kept = lock(&self.0);
        kept.suspended(kept.messages().len())
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
        let kept = &mut *lock(&self.0.0);
        (kept.is_written, kept.told, kept.ordered) = (false, None, None);
    }
}

/// An agent's use of the conversation.
#[derive(Debug)]
pub(crate) struct Open(Record);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0.0).is_open = false;
    }
}
