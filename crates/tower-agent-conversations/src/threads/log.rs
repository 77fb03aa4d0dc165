use std::sync::Arc;

use tower_agent::message::{Message, MessageId};

use super::list::List;
use super::log_entry::{Entry, Speaker};
use crate::error::StoreError;
use crate::json::to_json;
use crate::names::Names;

/// The characters that follow a run's name in the ids of its messages.
const AFTER_RUN: [char; 3] = ['-', '+', '/'];

/// The longest name of a run: a longer id than 1024 bytes is refused, and a number may follow it.
const LONGEST_RUN: usize = 1024 + 21;

/// All that a thread ever had, in chronological order: its messages, and its runs. It only grows,
/// and what is asked of it in each turn is looked up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    entries: List<Arc<Entry>>,
    runs: List<RunMark>,
    /// The names of both: the ids of entries and of their messages by the entry's index, those of
    /// runs by the run's.
    names: Names,
}

/// The beginning of a run.
#[derive(Clone, Debug, PartialEq)]
struct RunMark {
    /// The prefix of the ids of its messages.
    name: Arc<str>,
    /// The number of entries before it.
    after: usize,
}

/// An item as it is stored.
#[derive(Debug)]
pub(crate) enum LogItem {
    Entry(Entry),
    /// The name of one. As JSON it is a string.
    Run(Arc<str>),
}

impl LogItem {
    pub(crate) fn read(item: &str) -> Result<Self, StoreError> {
        let item = if item.starts_with('"') {
            serde_json::from_str(item).map(Self::Run)
        } else {
            serde_json::from_str(item).map(Self::Entry)
        };
        item.map_err(StoreError::data)
    }
}

impl Log {
    /// Returns the number of messages.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index).map(|entry| &**entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|entry| &**entry)
    }

    /// Adds a message. Returns its index.
    pub(crate) fn push(&mut self, entry: Entry) -> usize {
        let index = self.entries.len();
        let message = entry.message.as_ref().and_then(Message::id);
        let message = message.map(MessageId::to_shared);
        // Nearly always the same.
        let other = message.filter(|message| entry.id.as_ref() != Some(message));
        for name in entry.id.iter().cloned().chain(other) {
            self.names.note(name, index);
        }
        self.entries.push(Arc::new(entry));
        index
    }

    /// Adds a run, whose messages follow.
    pub(crate) fn begin_run(&mut self, name: Arc<str>) {
        self.names.note(name.clone(), self.runs.len());
        let after = self.entries.len();
        self.runs.push(RunMark { name, after });
    }

    /// Returns the number of runs.
    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the name of the latest run.
    pub(crate) fn latest_run(&self) -> Option<&Arc<str>> {
        self.runs.last().map(|run| &run.name)
    }

    /// Returns the last entry that the client has under this id.
    pub(crate) fn find(&self, speaker: Speaker, id: &str) -> Option<usize> {
        let places = self.names.places(id).into_iter();
        places.rev().find(|index| {
            let entry = self.get(*index);
            entry.is_some_and(|entry| entry.speaker == speaker && entry.id.as_deref() == Some(id))
        })
    }

    /// Returns whether a message has this id.
    pub(crate) fn has_message(&self, id: &str) -> bool {
        let mut places = self.names.places(id).into_iter();
        places.any(|index| self.get(index).is_some_and(|entry| entry.has_message(id)))
    }

    /// Returns whether a run may have given this id to one of its messages.
    pub(crate) fn is_of_a_run(&self, id: &str) -> bool {
        let ends = id.match_indices(AFTER_RUN).map(|(end, _)| end);
        // A client may send an endless id with nothing else in it.
        let mut runs = ends.take_while(|end| *end <= LONGEST_RUN);
        runs.any(|end| self.has_run(&id[..end]))
    }

    /// Returns whether the messages of a run with this name could have ids that others have.
    pub(crate) fn is_taken(&self, run: &str) -> bool {
        let has_name = |name: &str, index: usize| {
            let is_of =
                |entry: &Entry| entry.id.as_deref() == Some(name) || entry.has_message(name);
            self.get(index).is_some_and(is_of) || self.is_run(index, name)
        };
        let mut places = self.names.places(run).into_iter();
        let mut starts = AFTER_RUN.iter().map(|next| format!("{run}{next}"));
        places.any(|index| has_name(run, index))
            || starts.any(|start| self.names.any_like(&start, has_name))
    }

    fn has_run(&self, name: &str) -> bool {
        let mut places = self.names.places(name).into_iter();
        places.any(|index| self.is_run(index, name))
    }

    fn is_run(&self, index: usize, name: &str) -> bool {
        self.runs.get(index).is_some_and(|run| *run.name == *name)
    }

    // As it is stored

    /// Returns the number of items that are stored: entries and runs.
    pub(crate) fn stored(&self) -> usize {
        self.entries.len() + self.runs.len()
    }

    /// Returns the number of stored items that two logs have in common, from the first on.
    pub(crate) fn common(&self, other: &Self) -> usize {
        let entries = self.entries.common(&other.entries);
        let runs = self.runs.common(&other.runs);
        let others = [self, other].into_iter();
        let first_other = others.filter_map(|log| Some(log.runs.get(runs)?.after + runs));
        let before = |log: &Self| entries + log.runs_until(entries);
        let same = before(self).min(before(other));
        first_other.fold(same, usize::min)
    }

    /// Returns the number of runs that began before the entry at this index.
    fn runs_until(&self, index: usize) -> usize {
        let mut runs = self.runs.len();
        while runs > 0 && self.runs.get(runs - 1).is_some_and(|run| run.after > index) {
            runs -= 1;
        }
        runs
    }

    /// Returns the stored form of the items from this one on.
    pub(crate) fn write_from(&self, from: usize) -> Result<Vec<String>, StoreError> {
        let mut runs = self.runs.len();
        while let Some(run) = runs.checked_sub(1).and_then(|last| self.runs.get(last))
            && run.after + runs > from
        {
            runs -= 1;
        }
        let mut items = Vec::with_capacity(self.stored().saturating_sub(from));
        let mut new_runs = self.runs.iter_from(runs).peekable();
        let first = from - runs;
        for (offset, entry) in self.entries.iter_from(first).enumerate() {
            while let Some(run) = new_runs.next_if(|run| run.after <= first + offset) {
                items.push(to_json(&run.name)?);
            }
            items.push(to_json(&**entry)?);
        }
        for run in new_runs {
            items.push(to_json(&run.name)?);
        }
        Ok(items)
    }

    /// Adds an item as it is stored.
    pub(crate) fn read(&mut self, item: &str) -> Result<(), StoreError> {
        match LogItem::read(item)? {
            LogItem::Run(name) => self.begin_run(name),
            LogItem::Entry(entry) => {
                self.push(entry);
            }
        }
        Ok(())
    }
}

/// Returns whether an id is that of a message of the run with this name.
pub(crate) fn is_of_run(id: &str, run: &str) -> bool {
    id.strip_prefix(run)
        .is_some_and(|number| number.starts_with(AFTER_RUN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds entries, each named by the number of what the log has, and a run for each 0.
    fn grown(log: &Log, steps: &[u32], of: &str) -> Log {
        let mut log = log.clone();
        for step in steps {
            let name = format!("{of}{}", log.stored());
            if *step == 0 {
                log.begin_run(name.into());
            } else {
                let message = Message::user("Talk.").with_id(&*name);
                log.push(Entry::new(Some(name.into()), Speaker::User, message));
            }
        }
        log
    }

    #[test]
    fn a_write_after_what_two_logs_have_in_common_makes_one_of_the_other() {
        let all: Vec<Vec<u32>> = (0..3_u32)
            .flat_map(|length| (0..1 << length).map(move |bits| (length, bits)))
            .map(|(length, bits)| (0..length).map(|at| bits >> at & 1).collect())
            .collect();
        let mut pairs = 0;
        for start in &all {
            let start = grown(&Log::default(), start, "a");
            for (one, of) in all.iter().flat_map(|one| [(one, "b"), (one, "c")]) {
                let one = grown(&start, one, "b");
                for other in &all {
                    let other = grown(&start, other, of);
                    let same = one.common(&other);
                    assert!(same >= start.stored());
                    let mut items = one.write_from(0).unwrap();
                    items.truncate(same);
                    items.extend(other.write_from(same).unwrap());
                    assert_eq!(items, other.write_from(0).unwrap());
                    let mut read = Log::default();
                    for item in &items {
                        read.read(item).unwrap();
                    }
                    assert_eq!(read.common(&other), other.stored());
                    pairs += 1;
                }
            }
        }
        assert_eq!(pairs, 7 * 14 * 7);
    }

    #[test]
    fn names_of_another_clone_are_not_those_of_this() {
        let start = grown(&Log::default(), &[0, 1], "a");
        let one = grown(&start, &[1, 0], "b");
        let other = grown(&start, &[0, 1], "c");
        assert_eq!(one.find(Speaker::User, "b2"), Some(1));
        assert_eq!(one.find(Speaker::User, "a1"), Some(0));
        assert_eq!(one.find(Speaker::System, "a1"), None);
        assert!(one.is_of_a_run("b3-m0") && one.is_of_a_run("a0/helper-m1"));
        assert!(other.is_of_a_run("c2+1") && other.has_message("c3"));
        for unknown in ["c3", "c2-m0", "c2", "b", "b20"] {
            let is_known = one.find(Speaker::User, unknown).is_some()
                || one.has_message(unknown)
                || one.is_of_a_run(unknown)
                || one.is_taken(unknown);
            assert!(!is_known, "{unknown}");
        }
        assert!(one.is_taken("b2") && one.is_taken("b3") && !other.is_taken("b3"));
        let one = grown(&one, &[1], "a-");
        assert!(one.is_taken("a"));
    }
}
