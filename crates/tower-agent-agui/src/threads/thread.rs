use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use tower_agent::agent::Checkpoint;
use tower_agent::error::Resolution;
use tower_agent::message::{Message, Messages};

/// What the server knows of one thread: what was said in it, what it was asked, and what it waits
/// for.
///
/// A [store](super::ThreadStore) keeps it as it is: it serialises, and nothing in it is for a
/// front end to see.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    pub(super) version: u64,
    /// All that was ever said, in the order of time. Branches share what comes before them.
    pub(super) log: Vec<Arc<Entry>>,
    /// What of it the latest run has gone on from and added.
    pub(super) head: Vec<usize>,
    /// Where the latest run has stopped, without its messages.
    pub(super) rest: Checkpoint,
    pub(super) open: Vec<Open>,
    /// What the latest run was answered, until it has come to a good end.
    pub(super) answered: Vec<Answered>,
    /// What the messages of its runs are named after.
    pub(super) runs: Vec<Arc<str>>,
    /// What the latest run has said begins here.
    pub(super) run_from: usize,
    /// What runs that were cut off have done and the front end has never had: it stays where what
    /// comes before it stays.
    pub(super) unheard: BTreeSet<usize>,
    /// The latest run failed, or its front end went away: what it did may not have been told.
    pub(super) is_cut: bool,
    /// A run works on it, and was last heard of then: seconds since 1970.
    pub(super) running: Option<u64>,
}

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its name on the wire. None, if the front end does not know of it.
    pub(super) id: Option<Arc<str>>,
    pub(super) speaker: Speaker,
    /// What a model is shown of it; nothing of what has no place in the conversation.
    pub(super) message: Option<Message>,
    /// The calls that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Asked>,
    /// The message whose call it answers.
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

/// A call that the server has handed out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The model's name for it.
    pub(super) id: Arc<str>,
    /// Its name on the wire.
    pub(super) wire: Arc<str>,
    /// The front end answers it.
    pub(super) is_client: bool,
}

/// A question that waits for its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    /// Its name on the wire, which nobody can guess.
    pub(super) id: Arc<str>,
    /// The [`Interrupt::id`](tower_agent::Interrupt::id).
    pub(super) pending: String,
}

/// A question that has had its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) id: Arc<str>,
    pub(super) answer: Resolution,
}

impl Thread {
    /// Counts how often it was saved: 1 for the first time.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether it waits for a person.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a run works on it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn entry(&self, index: usize) -> Option<&Entry> {
        self.log.get(index).map(|entry| &**entry)
    }

    pub(super) fn push(&mut self, entry: Entry) -> usize {
        self.log.push(Arc::new(entry));
        self.log.len() - 1
    }

    /// What a model is shown of these.
    pub(super) fn messages(&self, of: &[usize]) -> Messages {
        let messages = of.iter().filter_map(|index| self.entry(*index)?.message.clone());
        messages.collect()
    }

    /// About how much memory it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        let rest = size(&(&self.rest, &self.open, &self.answered, &self.runs));
        self.log.iter().map(|entry| entry.size()).sum::<usize>() + rest
    }
}

/// The answers to calls that stand: of two to one call the later.
pub(super) struct Answers(HashMap<(usize, Arc<str>), usize>);

impl Answers {
    pub(super) fn of(thread: &Thread) -> Self {
        let mut answers = Self(HashMap::new());
        for index in 0..thread.log.len() {
            answers.note(thread, index);
        }
        answers
    }

    /// Notes an entry, if it is an answer. Returns the one in whose place it stands.
    pub(super) fn note(&mut self, thread: &Thread, index: usize) -> Option<usize> {
        let entry = thread.entry(index)?;
        let asks = entry.answers?;
        let result = entry.message.as_ref()?.tool_results().next()?;
        self.0.insert((asks, result.call_id.clone()), index)
    }

    pub(super) fn to(&self, asks: usize, call: &Arc<str>) -> Option<usize> {
        self.0.get(&(asks, call.clone())).copied()
    }

    /// Those that stand, by the message that asks, in the order of time.
    pub(super) fn by_asking(&self) -> HashMap<usize, Vec<usize>> {
        let mut all: HashMap<usize, Vec<usize>> = HashMap::new();
        for ((asks, _), index) in &self.0 {
            all.entry(*asks).or_default().push(*index);
        }
        all.values_mut().for_each(|of| of.sort_unstable());
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
    // Nothing in a thread fails to serialise; if it did, it would count as what was written.
    let _ = serde_json::to_writer(&mut count, of);
    count.0
}

impl Entry {
    pub(super) fn new(
        id: Option<Arc<str>>,
        speaker: Speaker,
        message: impl Into<Option<Message>>,
    ) -> Self {
        Self {
            id,
            speaker,
            message: message.into(),
            calls: Vec::new(),
            answers: None,
            size: OnceLock::new(),
        }
    }

    /// The same, which asks for these calls.
    pub(super) fn asking(self, calls: Vec<Asked>) -> Self {
        Self { calls, ..self }
    }

    /// The same, which answers a call of this message.
    pub(super) fn answering(self, answers: Option<usize>) -> Self {
        Self { answers, ..self }
    }

    fn size(&self) -> usize {
        const ENTRY: usize = 256;
        *self.size.get_or_init(|| ENTRY + size(self))
    }

    /// Whether it asks for a tool of the server's.
    pub(super) fn asks_server(&self) -> bool {
        self.calls.iter().any(|call| !call.is_client)
    }
}
