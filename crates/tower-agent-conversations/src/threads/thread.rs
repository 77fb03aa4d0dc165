use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tower_agent::agent::{Checkpoint, CheckpointHead};
use tower_agent::error::{Interrupt, Resolution, ResolutionOutcome};
use tower_agent::message::{IdPart, MessageId, Messages};

use super::branch::Branch;
use super::log::Log;
use super::log_entry::Entry;
use super::reader::Readers;
use super::repeat::Repeats;
use super::shown::{ShownForm, ShownMessage};
use crate::head::Claim;
use crate::time::{now, time};

/// The server's data about one thread: its messages, state, answers and open interrupts.
///
/// The methods read what an application shows of it; the stored form itself is not meant for the
/// client.
///
/// ```
/// use tower_agent_conversations::{ConversationKey, MemoryConversations, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let store = MemoryConversations::new();
/// let key = ConversationKey::new("shop", "ada", "thread 1");
/// if let Some(thread) = Thread::load(&store, &key).await? {
///     for message in &thread.messages() {
///         println!("{:?}: {}", message.role(), message.text());
///     }
///     for (id, interrupt) in thread.interrupts() {
///         println!("{id} waits for an answer: {interrupt:?}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Thread {
    pub(crate) version: u64,
    /// The time of the last save, in milliseconds since 1970.
    pub(crate) updated_at: i64,
    /// The state of the latest run.
    pub(crate) state: Map<String, Value>,
    /// All messages ever, in chronological order. Branches share their common start.
    // Stored item by item, and not with the rest, which is written anew each time.
    #[serde(skip)]
    pub(crate) log: Log,
    /// The current branch.
    pub(crate) branch: Branch,
    /// The head of the latest run's checkpoint, without interrupts: its messages are those of the
    /// branch, and its interrupts the open ones.
    pub(crate) head: CheckpointHead,
    pub(crate) open: Vec<OpenInterrupt>,
    /// The answers given to the latest run, until it completes.
    pub(crate) answered: Vec<Answered>,
    /// The client's messages that only repeat an answer, and could be taken for results.
    #[serde(default, skip_serializing_if = "Repeats::is_empty")]
    pub(crate) repeats: Repeats,
    /// The place where the messages of the latest run start.
    pub(crate) run_from: usize,
    /// Messages of runs that broke off that the client never received. They stay as long as those
    /// that precede them.
    pub(crate) unheard: BTreeSet<usize>,
    /// The devices of the user.
    pub(crate) readers: Readers,
    /// The client's messages while the thread waited for somebody else. They follow the answer.
    pub(crate) held: Vec<usize>,
    /// The latest run failed, or its client disconnected: the client may not know all its work.
    pub(crate) is_cut: bool,
    /// The run that has the thread, as it was loaded.
    #[serde(skip)]
    pub(crate) claim: Option<Claim>,
}

/// An open interrupt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenInterrupt {
    /// The client's id, which cannot be guessed.
    pub(crate) id: Arc<str>,
    pub(crate) interrupt: Interrupt,
}

impl OpenInterrupt {
    /// Returns the answer under this interrupt's own id.
    pub(crate) fn answered(&self, outcome: ResolutionOutcome, by: Option<&str>) -> Answered {
        let mut answer = Resolution::cancelled(&*self.interrupt.id);
        answer.outcome = outcome;
        answer.by = by.map(str::to_owned);
        Answered {
            id: self.id.clone(),
            call: self.interrupt.call().map(str::to_owned),
            answer,
        }
    }

    /// Returns the answer that it has without a person, if its time is over.
    pub(crate) fn expired(&self, now: SystemTime) -> Option<Answered> {
        let answer = self.interrupt.answer_at(now)?;
        Some(self.answered(answer.outcome, None))
    }
}

/// The questions of a thread that a run takes, and the answers of a run before that broke off.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) version: u64,
    open: Vec<OpenInterrupt>,
    answered: Vec<Answered>,
    /// The number of entries in the log.
    entries: usize,
}

impl Asked {
    pub(crate) fn of(thread: &Thread) -> Self {
        Self {
            version: thread.version,
            open: thread.open.clone(),
            answered: thread.answered.clone(),
            entries: thread.log.len(),
        }
    }

    /// Returns whether the run before had an answer to this question.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.answered.iter().any(|answered| *answered.id == *id)
    }

    /// Asks it again in the thread of a run that was refused, and was begun with nothing but
    /// answers. Returns whether it was.
    pub(crate) fn put_back(&self, thread: &mut Thread) -> bool {
        let is_as_before = thread.log.len() == self.entries;
        if is_as_before {
            // The answers stay: a later one to the same question does not count instead.
            thread.open.clone_from(&self.open);
            thread.is_cut = true;
        }
        is_as_before
    }
}

/// An answered interrupt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) id: Arc<str>,
    /// The client's id of the call that has waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    pub(crate) answer: Resolution,
}

impl Thread {
    /// Returns the version, which each save of the thread raises. A thread that was deleted and
    /// begins again continues with higher ones.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the time of the last save: 1970 if there was none.
    #[must_use]
    pub fn updated_at(&self) -> SystemTime {
        time(self.updated_at)
    }

    /// Returns the conversation, as the next run continues it. Messages that a client has dropped,
    /// and those of other branches, are not part of it.
    #[must_use]
    pub fn messages(&self) -> Messages {
        self.branch
            .messages(|index| self.entry(index)?.message.clone())
    }

    /// Returns the state that the latest run had when it was saved last.
    #[must_use]
    pub fn state(&self) -> &Map<String, Value> {
        &self.state
    }

    /// Returns the open interrupts, each with the id under which a client answers it.
    pub fn interrupts(&self) -> impl Iterator<Item = (&Arc<str>, &Interrupt)> {
        self.open.iter().map(|open| (&open.id, &open.interrupt))
    }

    /// Returns whether the thread has open interrupts.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns whether a run is active in the thread, and its lease has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let claim = self.claim.as_ref();
        claim.is_some_and(|claim| claim.until > now())
    }

    pub(crate) fn entry(&self, index: usize) -> Option<&Entry> {
        self.log.get(index)
    }

    /// Returns whether a message of the thread, or of one of its runs, may have this id.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.log.is_of_a_run(id) || self.log.has_message(id)
    }

    /// Returns the entries of the current branch, as indices into the log.
    pub(crate) fn branch(&self) -> &[usize] {
        self.branch.indices()
    }

    /// Sets the entries of the current branch.
    pub(crate) fn set_branch(&mut self, indices: Vec<usize>) {
        let branch = std::mem::take(&mut self.branch);
        self.branch = branch.continued(indices, |index| self.entry(index)?.message.clone());
    }

    /// Takes the list of a run that has the messages of the current branch.
    pub(crate) fn share_messages(&mut self, messages: &Messages) {
        self.branch.share(messages);
    }

    pub(crate) fn push(&mut self, entry: Entry) -> usize {
        self.log.push(entry)
    }

    /// Returns the checkpoint from which the next run continues.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            head: self.head.clone(),
            messages: self.messages(),
        }
    }

    /// Returns the entries of the conversation, with what waits to follow it, that the client has,
    /// from this index of the log on: the index of each in the log, and the entry with what the
    /// client has.
    fn shown_entries(&self, from: usize) -> impl Iterator<Item = (usize, usize, &Entry)> {
        let held = self
            .held
            .iter()
            .copied()
            .filter(move |index| *index >= from);
        self.branch.from(from).chain(held).filter_map(|index| {
            let entry = self.entry(index)?;
            let at = entry.changes.unwrap_or(index);
            let shown = self.entry(at)?;
            (!shown.shown.is_hidden()).then_some((index, at, shown))
        })
    }

    /// Returns the ids of the messages that the client has, from this index of the log on.
    pub(crate) fn shown_from(&self, from: usize) -> impl Iterator<Item = &Arc<str>> {
        let shown = self.shown_entries(from);
        shown.filter_map(|(.., entry)| entry.id.as_ref().filter(|_| entry.message.is_some()))
    }

    /// Returns the messages that the client has, oldest first, each with its index in the log and
    /// its id.
    pub(crate) fn shown(&self) -> Vec<(usize, &Arc<str>, ShownMessage)> {
        let mut messages = Vec::new();
        for (index, at, entry) in self.shown_entries(0) {
            let (Some(id), Some(message)) = (&entry.id, &entry.message) else {
                continue;
            };
            let message = match &entry.shown {
                ShownForm::Other(messages) => ShownMessage::Other(messages.clone()),
                _ => ShownMessage::Whole {
                    id: id.clone(),
                    message: message.clone(),
                    call: self.client_call(at, id),
                },
            };
            messages.push((index, id, message));
        }
        messages
    }

    /// Returns the client's id of the call that an entry with this id is the result of.
    fn client_call(&self, index: usize, id: &str) -> Option<Arc<str>> {
        let (calling, call) = self.answered_call(index)?;
        if self.log.is_of_a_run(id)
            && let Some((message, IdPart::Result { call, .. })) = IdPart::split(id)
        {
            // As the client has it. A callback may have replaced the message with the call since,
            // and a replaced message has another id, which the client may never have read.
            return Some(
                MessageId::from(message)
                    .part(IdPart::Call(call))
                    .to_shared(),
            );
        }
        let call = self.entry(calling)?.calls.get(call)?;
        Some(call.client_id.clone())
    }

    /// Returns whether the client knows this message by its id, and not as the result of a call.
    pub(crate) fn is_known(&self, index: usize) -> bool {
        self.entry(index)
            .is_some_and(|entry| entry.id.is_some() && entry.answers.is_none())
    }

    /// Returns whether the current branch is all that was ever said, and the client has received
    /// it.
    pub(crate) fn is_whole(&self) -> bool {
        let is_all = self.branch().len() == self.log.len();
        is_all && !self.is_cut && self.held.is_empty() && self.unheard.is_empty()
    }

    /// Returns whether this entry is the result of a call.
    pub(crate) fn is_result(&self, index: usize) -> bool {
        self.entry(index)
            .is_some_and(|entry| entry.answers.is_some())
    }

    /// Returns the call that an entry is the result of: the index of the message, and that of the
    /// call in it.
    pub(crate) fn answered_call(&self, index: usize) -> Option<(usize, usize)> {
        let entry = self.entry(index)?;
        let calling = entry.answers?;
        let result = entry.message.as_ref()?.tool_results().next()?;
        let mut calls = self.entry(calling)?.calls.iter();
        let call = calls.position(|call| call.id == result.call_id)?;
        Some((calling, call))
    }
}
