use std::collections::{BTreeSet, HashMap};
use std::slice;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use tower_agent::agent::{Checkpoint, CheckpointHead};
use tower_agent::error::Resolution;
use tower_agent::message::Message;

/// The server's data about one thread: its messages, answers and open interrupts.
///
/// A [store](super::ThreadStore) saves it as it is: it serialises. It is not meant for the client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    pub(super) version: u64,
    /// All messages ever, in chronological order. Branches share their common start.
    pub(super) log: Vec<Arc<Entry>>,
    /// The messages of the current branch, as indices into the log.
    pub(super) branch: Vec<usize>,
    /// The head of the latest run's checkpoint, whose messages are those of the branch.
    pub(super) head: CheckpointHead,
    pub(super) open: Vec<Open>,
    /// The answers given to the latest run, until it completes.
    pub(super) answered: Vec<Answered>,
    /// The id prefixes of its runs' messages.
    pub(super) runs: Vec<Arc<str>>,
    /// Where the messages of the latest run start.
    pub(super) run_from: usize,
    /// Messages of runs that broke off that the client never received; they are kept as long as
    /// what precedes them.
    pub(super) unheard: BTreeSet<usize>,
    /// The latest run failed, or its client disconnected: the client may not know all its work.
    pub(super) is_cut: bool,
    /// When the active run last saved, in seconds since 1970.
    pub(super) running: Option<u64>,
}

/// One message of a [`Thread`], which serialises.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadEntry(Arc<Entry>);

/// The entries of a [`Thread`]; created by [`Thread::entries`].
#[derive(Clone, Debug)]
pub struct ThreadEntries<'t>(slice::Iter<'t, Arc<Entry>>);

impl Iterator for ThreadEntries<'_> {
    type Item = ThreadEntry;

    fn next(&mut self) -> Option<ThreadEntry> {
        self.0.next().cloned().map(ThreadEntry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    fn nth(&mut self, index: usize) -> Option<ThreadEntry> {
        self.0.nth(index).cloned().map(ThreadEntry)
    }
}

impl ExactSizeIterator for ThreadEntries<'_> {}

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its id on the wire, if the client knows it.
    pub(super) id: Option<Arc<str>>,
    pub(super) speaker: Speaker,
    /// The message for the model, if it is part of the conversation.
    pub(super) message: Option<Message>,
    /// Its tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Asked>,
    /// The message whose call it is a result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answers: Option<usize>,
    #[serde(skip)]
    size: OnceLock<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Speaker {
    User,
    System,
    Assistant,
    Tool,
}

/// A call that the server has sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The model's id.
    pub(super) id: Arc<str>,
    /// The id on the wire.
    pub(super) wire: Arc<str>,
    /// The client executes it.
    pub(super) is_client: bool,
}

/// An open interrupt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    /// Its id on the wire, which cannot be guessed.
    pub(super) id: Arc<str>,
    /// The [`Interrupt::id`](tower_agent::Interrupt::id).
    pub(super) pending: String,
    #[serde(default)]
    pub(super) is_for_operator: bool,
}

/// An answered interrupt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) id: Arc<str>,
    pub(super) answer: Resolution,
}

impl Thread {
    /// Returns the version: how often the thread was saved.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns whether the thread has open interrupts.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns whether a run is active in the thread.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns all messages ever, oldest first. A run adds messages at the end; those that were there
    /// before it do not change.
    #[must_use]
    pub fn entries(&self) -> ThreadEntries<'_> {
        ThreadEntries(self.log.iter())
    }

    /// Returns the thread without its entries, for a store that saves them one by one.
    #[must_use]
    pub fn without_entries(&self) -> Self {
        Self {
            log: Vec::new(),
            ..self.clone()
        }
    }

    /// Sets the entries.
    ///
    /// ```
    /// use tower_agent_agui::threads::{Thread, ThreadEntry};
    ///
    /// let thread = Thread::default();
    /// let saved: Vec<ThreadEntry> = thread.entries().collect();
    /// let thread = thread.without_entries().with_entries(saved);
    /// assert_eq!(thread.entries().len(), 0);
    /// ```
    #[must_use]
    pub fn with_entries(self, entries: impl IntoIterator<Item = ThreadEntry>) -> Self {
        Self {
            log: entries
                .into_iter()
                .map(|ThreadEntry(entry)| entry)
                .collect(),
            ..self
        }
    }

    pub(super) fn entry(&self, index: usize) -> Option<&Entry> {
        self.log.get(index).map(|entry| &**entry)
    }

    /// Returns whether a message of the thread, or of one of its runs, may have this id.
    pub(super) fn has_id(&self, id: &str) -> bool {
        let is_of_run = |run: &Arc<str>| {
            let rest = id.strip_prefix(&**run);
            rest.is_some_and(|rest| rest.starts_with(['-', '+', '/']))
        };
        let has_it = |entry: &Arc<Entry>| {
            let message = entry.message.as_ref().and_then(Message::id);
            message.is_some_and(|message| *message == *id)
        };
        self.runs.iter().any(is_of_run) || self.log.iter().any(has_it)
    }

    pub(super) fn push(&mut self, entry: Entry) -> usize {
        self.log.push(Arc::new(entry));
        self.log.len() - 1
    }

    /// Returns the checkpoint from which the next run continues.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        let messages = self.branch.iter();
        Checkpoint {
            head: self.head.clone(),
            messages: messages
                .filter_map(|index| self.entry(*index)?.message.clone())
                .collect(),
        }
    }

    /// Returns the call that an entry is the result of: the index of the message, and the place in it.
    pub(super) fn answered_call(&self, index: usize) -> Option<(usize, usize)> {
        let entry = self.entry(index)?;
        let asks = entry.answers?;
        let result = entry.message.as_ref()?.tool_results().next()?;
        let place = self
            .entry(asks)?
            .calls
            .iter()
            .position(|call| call.id == result.call_id)?;
        Some((asks, place))
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        let head = size(&(&self.head, &self.open, &self.answered, &self.runs));
        self.log.iter().map(|entry| entry.size()).sum::<usize>() + head
    }
}

/// Returns a message with an id, by which the transcript of a run is compared with the thread.
fn identified(message: Message) -> Message {
    if message.id().is_some() {
        message
    } else {
        message.with_id(uuid::Uuid::new_v4().to_string())
    }
}

/// The results that count: for two results of one call, the later.
pub(super) struct Answers(HashMap<(usize, Arc<str>), usize>);

impl Answers {
    pub(super) fn of(thread: &Thread) -> Self {
        let mut answers = Self(HashMap::new());
        for index in 0..thread.log.len() {
            answers.note(thread, index);
        }
        answers
    }

    /// Records an entry if it is a result. Returns the one that it replaces.
    pub(super) fn note(&mut self, thread: &Thread, index: usize) -> Option<usize> {
        let entry = thread.entry(index)?;
        let asks = entry.answers?;
        let result = entry.message.as_ref()?.tool_results().next()?;
        self.0.insert((asks, result.call_id.clone()), index)
    }

    pub(super) fn to(&self, asks: usize, call: &Arc<str>) -> Option<usize> {
        self.0.get(&(asks, call.clone())).copied()
    }

    /// Returns the results that count, by the message with the call.
    pub(super) fn by_asking(&self) -> HashMap<usize, Vec<usize>> {
        let mut all: HashMap<usize, Vec<usize>> = HashMap::new();
        for ((asks, _), index) in &self.0 {
            all.entry(*asks).or_default().push(*index);
        }
        all
    }
}

fn size(of: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A thread always serialises; otherwise what was written so far counts.
    let _ = serde_json::to_writer(&mut count, of);
    count.0
}

impl Entry {
    pub(super) fn new(
        id: Option<Arc<str>>,
        speaker: Speaker,
        message: impl Into<Option<Message>>,
    ) -> Self {
        let message: Option<Message> = message.into();
        Self {
            id,
            speaker,
            message: message.map(identified),
            calls: Vec::new(),
            answers: None,
            size: OnceLock::new(),
        }
    }

    /// Sets the calls.
    pub(super) fn asking(self, calls: Vec<Asked>) -> Self {
        Self { calls, ..self }
    }

    /// Sets the message whose call this is a result of.
    pub(super) fn answering(self, answers: Option<usize>) -> Self {
        Self { answers, ..self }
    }

    fn size(&self) -> usize {
        const ENTRY: usize = 256;
        *self.size.get_or_init(|| ENTRY + size(self))
    }

    /// Returns whether it calls a tool of the server.
    pub(super) fn asks_server(&self) -> bool {
        self.calls.iter().any(|call| !call.is_client)
    }
}
