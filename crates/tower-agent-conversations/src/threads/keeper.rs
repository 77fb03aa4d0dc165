use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use tower_agent::agent::Checkpoint;
use tower_agent::error::{Error, ErrorKind};
use tower_agent::message::{IdPart, Message, MessageId, Messages, Role};
use tower_agent::stream::EventKind;

use super::client::ClientView;
use super::interrupt_ids::InterruptIds;
use super::log::is_of_run;
use super::log_entry::{Entry, SentCall, Speaker};
use super::progress::RunProgress;
use super::reader::Mark;
use super::saving::Saving;
use super::seal::SealKeys;
use super::shown::ShownForm;
use super::stored::ThreadLease;
use super::thread::{Asked, OpenInterrupt, Thread};
use crate::key::ConversationKey;
use crate::time::now;

/// The place where a run keeps its thread.
pub(crate) enum Keeping {
    Store(ThreadLease),
    /// With the client.
    Sealed(SealKeys),
}

/// The saved progress of a run; created by [`Keeper::keep`].
#[derive(Debug)]
#[must_use = "nothing is saved until the save is awaited, or the sealed thread sent"]
pub enum Save {
    /// A save in the store. Send nothing that depends on it before it is made.
    Store(Saving),
    /// The sealed thread, for the client. `None` if it could not be sealed.
    Sealed(Option<String>),
}

/// A device that receives a run.
pub(crate) struct Device {
    pub(crate) mark: Mark,
    /// It is sent first what it has missed, which it may not receive if the run breaks off.
    pub(crate) is_behind: bool,
}

/// Saves one thread during a run; created by [`Threads::begin`](crate::Threads::begin).
pub struct Keeper {
    keeping: Keeping,
    key: ConversationKey,
    /// The prefix of the ids of the run's messages.
    name: Arc<str>,
    /// The thread at the start of the run.
    base: Thread,
    /// The questions before that.
    asked: Option<Asked>,
    /// The agent may not go on with the conversation.
    is_refused: bool,
    /// The thread as the run has saved it last, so that the next save adds only what is new.
    saved: Option<Saved>,
    client_tools: HashSet<Arc<str>>,
    /// The device that receives the run, if one does.
    device: Option<Device>,
    interrupt_ids: InterruptIds,
    /// The tool results that are saved.
    saved_results: HashSet<Arc<str>>,
}

/// A thread that a run has saved.
#[derive(Clone)]
struct Saved {
    thread: Thread,
    /// The calls of the run.
    calls: LatestCalls,
}

impl Keeper {
    pub(crate) fn new(
        keeping: Keeping,
        key: ConversationKey,
        name: Arc<str>,
        base: Thread,
        asked: Option<Asked>,
        client_tools: HashSet<Arc<str>>,
        device: Option<Device>,
    ) -> Self {
        let interrupt_ids = InterruptIds::of_open(&base.open);
        Self {
            keeping,
            key,
            name,
            base,
            asked,
            is_refused: false,
            saved: None,
            client_tools,
            device,
            interrupt_ids,
            saved_results: HashSet::new(),
        }
    }

    /// Returns the ids under which the client receives the run's interrupts, and answers them.
    #[must_use]
    pub fn interrupt_ids(&self) -> &InterruptIds {
        &self.interrupt_ids
    }

    /// Returns whether to save before this event is sent: the client must not read a result that
    /// the server could forget.
    #[inline]
    #[must_use]
    pub fn must_save_before(&self, event: &EventKind) -> bool {
        match event {
            EventKind::ToolResult(result) => {
                matches!(self.keeping, Keeping::Store(_))
                    && !self.saved_results.contains(&result.message)
            }
            _ => false,
        }
    }

    /// Notes the error of the run. One that refuses the request leaves what was asked as it was,
    /// for another version of the program, if the run has done nothing: its answers have not
    /// counted.
    pub(crate) fn note_error(&mut self, error: &Error) {
        self.is_refused = error.kind() == ErrorKind::InvalidRequest;
    }

    /// Saves the progress of the run: its checkpoint and state, and what the client has of it.
    ///
    /// Make the saves of a run one after the other, in this order; and save once at its end,
    /// however it ended: until then the run has the thread.
    pub fn keep(
        &mut self,
        checkpoint: Checkpoint,
        state: Map<String, Value>,
        client: &impl ClientView,
        progress: RunProgress,
    ) -> Save {
        let mut thread = self.thread(checkpoint, client, progress);
        match &self.keeping {
            Keeping::Store(lease) => {
                // A sealed thread has none: its client has the state, and nobody else reads it.
                thread.state = state;
                Save::Store(lease.save(thread, progress != RunProgress::Running))
            }
            Keeping::Sealed(keys) => {
                thread.version += 1;
                Save::Sealed(keys.seal(&self.key, &thread))
            }
        }
    }

    fn thread(
        &mut self,
        checkpoint: Checkpoint,
        client: &impl ClientView,
        progress: RunProgress,
    ) -> Thread {
        // The last save starts from the beginning of the run: what the client has of a message may
        // have changed since the message was saved.
        let is_last = progress != RunProgress::Running;
        let Saved {
            mut thread,
            mut calls,
        } = self.saved.take().filter(|_| !is_last).unwrap_or(Saved {
            thread: self.base.clone(),
            calls: LatestCalls::default(),
        });
        // The client of a sealed thread has its answer, which counts once.
        let goes_on_elsewhere = progress == RunProgress::Cut
            && self.is_refused
            && matches!(self.keeping, Keeping::Store(_))
            && self.base.checkpoint().is_untouched_in(&checkpoint);
        if goes_on_elsewhere
            && let Some(asked) = &self.asked
            && asked.put_back(&mut thread)
        {
            thread.updated_at = now();
            return thread;
        }
        let Checkpoint { mut head, messages } = checkpoint;
        self.add(&mut thread, &mut calls, &messages, client, progress);
        // A run that broke off may have its answer again, so its interrupts stay.
        if progress != RunProgress::Cut {
            thread.open.clear();
        }
        if progress == RunProgress::Ended {
            for interrupt in head.interrupts.drain(..) {
                let id = self.interrupt_ids.of(&interrupt.id);
                thread.open.push(OpenInterrupt { id, interrupt });
            }
            thread.answered.clear();
            let open = &thread.open;
            thread
                .repeats
                .retain(|_, repeat| repeat.matters(open.iter().map(|open| open.interrupt.call())));
            if thread.open.is_empty() && !thread.held.is_empty() {
                let mut branch = thread.branch().to_vec();
                branch.append(&mut thread.held);
                thread.set_branch(branch);
            }
        }
        if let Some(device) = &self.device
            && (progress == RunProgress::Ended || !device.is_behind)
        {
            thread.readers.set(&device.mark, thread.log.len());
        }
        thread.head = head;
        thread.updated_at = now();
        // So it is if this save is the last one.
        thread.is_cut = progress != RunProgress::Ended;
        if !is_last {
            self.saved = Some(Saved {
                thread: thread.clone(),
                calls,
            });
        }
        thread
    }

    /// Adds the messages of the transcript that the thread does not have.
    fn add(
        &mut self,
        thread: &mut Thread,
        latest_calls: &mut LatestCalls,
        messages: &Messages,
        client: &impl ClientView,
        progress: RunProgress,
    ) {
        let old = thread.branch.clone();
        let old = old.indices();
        let known = thread.messages();
        // Nearly always the run has only added messages: then those of the thread need no look.
        let is_continued = known.len() == old.len() && messages.continues(&known);
        let unchanged = if is_continued { old.len() } else { 0 };
        let positions = positions(thread, &old[unchanged..], messages.range(unchanged));
        let last = positions
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |at| at + 1);
        let mut branch = Vec::with_capacity(old.len().max(messages.len()) + 1);
        branch.extend_from_slice(&old[..unchanged]);
        let mut earlier_calls = None;
        let mut known = old[unchanged..].iter().copied();
        let mut passed = 0;
        let new = messages.range(unchanged).zip(&positions);
        for (index, (message, position)) in new.enumerate() {
            if index == last {
                // Messages that callbacks have hidden from the model stay.
                branch.extend(known.by_ref());
            }
            let mut changes = None;
            if let Some(position) = position {
                branch.extend(known.by_ref().take(position + 1 - passed));
                passed = position + 1;
                let at = branch.last().copied().and_then(|index| thread.entry(index));
                if at.is_none_or(|entry| entry.message.as_ref() == Some(message)) {
                    continue;
                }
                // A callback has changed it since. What is stored does not change, so the message
                // is stored again in its place.
                changes = at
                    .and_then(|entry| entry.changes)
                    .or(branch.last().copied());
                branch.pop();
            }
            let mut results = message.tool_results();
            let calling = results.next().and_then(|result| {
                let id = &result.call_id;
                // Nearly always a call of this run: those of all others are looked up only if it is
                // not.
                latest_calls.of(id).or_else(|| {
                    let earlier = || LatestCalls::of_entries(thread, old);
                    earlier_calls.get_or_insert_with(earlier).of(id)
                })
            });
            let entry = self.entry(calling, message, client, progress);
            let entry = entry.changing(changes);
            if let (Role::Tool, Some(id)) = (message.role(), &entry.id) {
                self.saved_results.insert(id.clone());
            }
            let index = thread.push(entry);
            branch.push(index);
            latest_calls.note(thread, index);
        }
        branch.extend(known);
        if progress == RunProgress::Cut {
            for half in self.broken_off(messages, client) {
                branch.push(thread.push(half));
            }
        }
        thread.set_branch(branch);
        thread.share_messages(messages);
    }

    /// Returns the form in which the client has a message.
    fn shown(
        &self,
        id: Option<&str>,
        message: &Message,
        client: &impl ClientView,
        progress: RunProgress,
    ) -> ShownForm {
        match (&self.keeping, id) {
            (Keeping::Store(_), Some(id)) => client.shown(id, message, progress),
            // Nobody but its client reads a sealed thread.
            _ => ShownForm::Hidden,
        }
    }

    /// Returns the streamed part of a response that broke off: the client has it, and the
    /// transcript does not.
    fn broken_off(&self, messages: &Messages, client: &impl ClientView) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (id, text) in client.texts() {
            let is_in = |message: &Message| message.id().is_some_and(|own| *own == *id);
            if is_of_run(id, &self.name) && !text.is_empty() && !messages.iter().any(is_in) {
                let half = Message::assistant(text).with_id(id);
                let shown = self.shown(Some(id), &half, client, RunProgress::Cut);
                let entry = Entry::new(Some(id.into()), Speaker::Assistant, half);
                entries.push(entry.shown_as(shown));
            }
        }
        entries
    }

    fn entry(
        &self,
        // The entry with the call that the message is a result of.
        calling: Option<usize>,
        message: &Message,
        client: &impl ClientView,
        progress: RunProgress,
    ) -> Entry {
        let id = message.id().map(MessageId::to_shared);
        match message.role() {
            // The client has not read what callbacks say in the name of others.
            Role::System => Entry::new(None, Speaker::System, message.clone()),
            Role::User => Entry::new(None, Speaker::User, message.clone()),
            Role::Assistant => {
                let mut calls = Vec::with_capacity(message.tool_calls().count());
                for (index, call) in message.tool_calls().enumerate() {
                    let client_id = message.id().map(|id| id.tool_call(index));
                    calls.push(SentCall {
                        id: call.id.clone(),
                        client_id: client_id.unwrap_or_default(),
                        is_client: self.client_tools.contains(&call.name),
                    });
                }
                let shown = self.shown(id.as_deref(), message, client, progress);
                let id = id.and_then(|id| id_at_client(id, client));
                let entry = Entry::new(id, Speaker::Assistant, message.clone());
                entry.with_calls(calls).shown_as(shown)
            }
            // A message of any other role is not a result.
            _ => {
                let shown = self.shown(id.as_deref(), message, client, progress);
                let id = id.filter(|_| calling.is_some());
                let entry = Entry::new(id, Speaker::Tool, message.clone());
                entry.with_call(calling).shown_as(shown)
            }
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("key", &self.key)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Returns the positions of these messages in the thread's branch, if they are there.
fn positions<'a>(
    thread: &Thread,
    branch: &[usize],
    messages: impl Iterator<Item = &'a Message>,
) -> Vec<Option<usize>> {
    let mut from = 0;
    let mut positions = Vec::new();
    for message in messages {
        // Nearly always the next one.
        let found = branch[from..].iter().position(|index| {
            let known = thread
                .entry(*index)
                .and_then(|entry| entry.message.as_ref());
            known.is_some_and(|known| known.id() == message.id())
        });
        let found = found.map(|at| from + at);
        if let Some(at) = found {
            from = at + 1;
        }
        positions.push(found);
    }
    positions
}

/// Returns the id under which the client has a message, if it has it. Of a message without text and
/// calls it has only the reasoning.
fn id_at_client(id: Arc<str>, client: &impl ClientView) -> Option<Arc<str>> {
    if client.has_message(&id) {
        return Some(id);
    }
    // As in the event that starts the reasoning of a message.
    let reasoning = format!("{id}{}", IdPart::Reasoning(0));
    client.has_message(&reasoning).then(|| reasoning.into())
}

/// The message with the latest call of each id.
#[derive(Clone, Default)]
struct LatestCalls(HashMap<Arc<str>, usize>);

impl LatestCalls {
    fn of_entries(thread: &Thread, indices: &[usize]) -> Self {
        let mut latest = Self::default();
        for index in indices {
            latest.note(thread, *index);
        }
        latest
    }

    fn note(&mut self, thread: &Thread, index: usize) {
        for call in thread.entry(index).iter().flat_map(|entry| &entry.calls) {
            self.0.insert(call.id.clone(), index);
        }
    }

    fn of(&self, call: &str) -> Option<usize> {
        self.0.get(call).copied()
    }
}
