//! The runs in memory, within bounds: the oldest go first.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tower_agent::stream::{Event, EventKind, Observation};

use crate::address::key_of;
use crate::note::{Note, What};
use crate::record::{Run, StoredMark, Summary, micros};
use crate::stored::{StoredKey, StoredPlace, StoredQuery};

/// The number of forks of one run that it shows.
const FORKS: usize = 100;

/// The number of removed runs that are remembered.
const REMOVED: usize = 10_000;

/// The number of entries after which a run that goes on is written.
pub(crate) const BATCH: usize = 500;

/// The time after which it is, if it has changed.
pub(crate) const PACE: Duration = Duration::from_secs(2);

/// The bounds of what is in memory, where a database keeps the rest.
const RECENT: Limits = Limits {
    runs: 1_000,
    bytes: 64 << 20,
    age: None,
};

/// The bounds of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) runs: usize,
    pub(crate) bytes: usize,
    /// The time since a run has ended, or has begun if it has not.
    pub(crate) age: Option<Duration>,
}

/// The runs, by their numbers.
#[derive(Debug)]
pub(crate) struct Store {
    /// Names this console among those of a database.
    console: String,
    pub(crate) limits: Limits,
    /// A database keeps the runs.
    pub(crate) has_database: bool,
    /// Runs that are not in the database as they are now.
    unwritten: BTreeSet<u64>,
    /// The version until which changes are not to wait.
    pub(crate) urgent: u64,
    /// Runs that went to make room before they were written.
    pub(crate) unstored: u64,
    /// The texts of errors and events are kept.
    pub(crate) has_content: bool,
    pub(crate) runs: BTreeMap<u64, Run>,
    /// The latest run with each id.
    by_id: HashMap<Arc<str>, u64>,
    /// The runs with an id of their own, which they show.
    by_shown_id: HashMap<Arc<str>, u64>,
    pub(crate) bytes: usize,
    next: u64,
    /// Counts changes.
    pub(crate) version: u64,
    /// The number of things that were observed of runs that are not here.
    pub(crate) left_out: u64,
    /// Runs that have gone to make room, or were too old.
    pub(crate) gone: u64,
    /// The ids of the last runs that were removed, with the version of the change.
    pub(crate) removed: VecDeque<(u64, Arc<str>)>,
    /// The ids of removed runs that had not ended, the oldest first: what is still told of them is
    /// not to begin another one.
    dead: VecDeque<Arc<str>>,
}

/// Returns whether a query for the list selects a run.
fn selects(query: &StoredQuery, run: &Summary) -> bool {
    let is_agent = |agent: &String| {
        // The name of the agent that was called, or its path in another.
        *run.agent == **agent || run.agent.rsplit('/').next() == Some(agent)
    };
    let is_status = |status: &String| run.status.name() == status;
    let is_user = |user: &String| run.user.as_deref() == Some(user);
    query.agent.as_ref().is_none_or(is_agent)
        && query.status.as_ref().is_none_or(is_status)
        && query.user.as_ref().is_none_or(is_user)
}

impl Store {
    /// Creates the store of a console with this name, and the bounds that it has by default.
    pub(crate) fn new(console: String) -> Self {
        Self {
            console,
            limits: RECENT,
            has_database: false,
            unwritten: BTreeSet::new(),
            urgent: 0,
            unstored: 0,
            has_content: false,
            runs: BTreeMap::new(),
            by_id: HashMap::new(),
            by_shown_id: HashMap::new(),
            bytes: 0,
            next: 1,
            version: 0,
            left_out: 0,
            gone: 0,
            removed: VecDeque::new(),
            dead: VecDeque::new(),
        }
    }

    /// Returns the runs that a query selects, the latest first, and one more than it asks for if
    /// there are more.
    pub(crate) fn list(&self, query: &StoredQuery) -> Vec<(StoredPlace, &Summary)> {
        let runs = self.runs.values().map(|run| &run.summary);
        let selected = runs.filter(|run| selects(query, run));
        let mut selected: Vec<_> = selected.map(|run| (self.place(run), run)).collect();
        if let Some(before) = &query.before {
            selected.retain(|(place, _)| place < before);
        }
        selected.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        selected.truncate(query.limit as usize + 1);
        selected
    }

    /// Returns whether nothing of a run was left out: what was never told of it cannot be missed by
    /// looking at the rest.
    pub(crate) fn is_whole(&self, run: &Run) -> bool {
        run.summary.left_out == 0 && run.left_out_before == self.left_out
    }

    pub(crate) fn place(&self, run: &Summary) -> StoredPlace {
        StoredPlace {
            begun: run.begun,
            key: self.key(run.number),
        }
    }

    pub(crate) fn key(&self, number: u64) -> StoredKey {
        StoredKey {
            console: self.console.clone(),
            number,
        }
    }

    /// Returns the number of a run that is here, if it is one of this console's.
    pub(crate) fn number_of(&self, key: &StoredKey) -> Option<u64> {
        let is_own = key.console == self.console && self.runs.contains_key(&key.number);
        is_own.then_some(key.number)
    }

    /// Returns the next run, behind this number, that is to be written now, and whether it is
    /// whole.
    pub(crate) fn unwritten(&mut self, after: u64) -> Option<(&mut Run, StoredKey, bool)> {
        let mut behind = self.unwritten.range(after + 1..);
        let number = *behind.find(|number| {
            let run = self.runs.get(number);
            run.is_some_and(|run| self.is_due(run))
        })?;
        let key = self.key(number);
        let is_whole = self.is_whole(self.runs.get(&number)?);
        Some((self.runs.get_mut(&number)?, key, is_whole))
    }

    /// Returns whether a change of a run is to be written now. One that goes on is written as it
    /// begins, and then from time to time.
    fn is_due(&self, run: &Run) -> bool {
        let Some(stored) = &run.stored else {
            return true;
        };
        run.has_ended()
            || stored.is_part
            || stored.version < self.urgent
            || run.entries.len() >= stored.entries + BATCH
            || stored.at.elapsed() >= PACE
    }

    /// Returns the number of runs that are not in the database as they were at the version that is
    /// not to wait.
    pub(crate) fn count_unwritten(&self) -> usize {
        let behind = self.unwritten.iter().filter(|number| {
            let run = self.runs.get(number);
            let stored = run.and_then(|run| run.stored);
            stored.is_none_or(|stored| stored.version < self.urgent)
        });
        behind.count()
    }

    /// Returns whether a run has changed since it was written.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Notes how far a run was written.
    pub(crate) fn written(&mut self, number: u64, mark: StoredMark) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        run.stored = Some(mark);
        if run.summary.version == mark.version {
            self.unwritten.remove(&number);
        }
    }

    /// Returns the numbers of the runs of which the database has something.
    pub(crate) fn all_written(&self) -> Vec<u64> {
        let stored = self.runs.values().filter(|run| run.stored.is_some());
        stored.map(|run| run.summary.number).collect()
    }

    /// Returns the number of a run, by the id that it shows or by its address.
    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        let shown = self.by_shown_id.get(id).copied();
        shown.or_else(|| self.number_of(&key_of(id)?))
    }

    /// Returns the latest run that has this id itself, whatever it shows.
    pub(crate) fn latest(&self, id: &str) -> Option<&Summary> {
        let run = self.runs.get(self.by_id.get(id)?)?;
        Some(&run.summary)
    }

    pub(crate) fn run(&self, id: &str) -> Option<&Run> {
        self.runs.get(&self.number(id)?)
    }

    /// Takes in what an observer was told.
    pub(crate) fn observe(&mut self, observation: Observation) {
        let Observation { run, event, .. } = observation;
        if matches!(event.kind, EventKind::AgentStarted) {
            self.enter(&run, &event);
            return;
        }
        let Some(agent) = self.agent(&run, &event.invocation.id) else {
            self.left_out += 1;
            return;
        };
        let has_content = self.has_content;
        self.change(&run, |run, version| {
            run.observe(agent, event, has_content, version);
        });
    }

    /// Takes in what a layer has seen.
    pub(crate) fn note(&mut self, note: Note) {
        let Note {
            run,
            agent,
            at,
            what,
        } = note;
        let Some(agent) = self.agent(&run, &agent) else {
            self.left_out += 1;
            return;
        };
        let at = micros(at);
        let origin = match &what {
            What::About { fork_of, .. } => fork_of.as_ref().map(|origin| origin.run.clone()),
            _ => None,
        };
        self.change(&run, |run, version| run.note(agent, at, what, version));
        if let Some(origin) = origin {
            self.add_fork(&origin, &run);
        }
    }

    /// Adds a fork to its origin, if that is here.
    fn add_fork(&mut self, origin: &str, fork: &str) {
        let fork = self
            .by_id
            .get(fork)
            .and_then(|number| self.runs.get(number));
        let fork = fork.map(|run| run.summary.id.clone());
        let origin = self.run(origin).map(|run| run.id.clone());
        let (Some(fork), Some(origin)) = (fork, origin) else {
            return;
        };
        self.change(&origin, |run, _| {
            let forks = &mut run.summary.forks;
            if forks.len() < FORKS && !forks.contains(&fork) {
                forks.push(fork);
            }
        });
    }

    /// Counts what was dropped before it came here.
    pub(crate) fn count_dropped(&mut self, dropped: u64) {
        if dropped > 0 {
            self.left_out += dropped;
            self.version += 1;
        }
    }

    fn agent(&self, run: &str, invocation: &str) -> Option<u32> {
        let run = self.runs.get(self.by_id.get(run)?)?;
        run.agents.get(invocation).copied()
    }

    /// Changes a run that is here.
    fn change(&mut self, id: &str, change: impl FnOnce(&mut Run, u64)) {
        let Some(run) = self
            .by_id
            .get(id)
            .and_then(|number| self.runs.get_mut(number))
        else {
            return;
        };
        self.version += 1;
        run.summary.version = self.version;
        let before = run.bytes;
        change(run, self.version);
        self.bytes = self.bytes.saturating_sub(before) + run.bytes;
        if self.has_database {
            let number = run.summary.number;
            self.unwritten.insert(number);
        }
        self.make_room();
    }

    /// Takes in an agent that starts.
    fn enter(&mut self, id: &Arc<str>, event: &Event) {
        let known = self.by_id.get(id).and_then(|number| self.runs.get(number));
        // A run that is made again, such as a durable one that goes on, counts its agents anew.
        let is_known = known.is_some_and(|run| !run.agents.contains_key(&event.invocation.id));
        if !is_known {
            // An agent inside a run that was removed while it ran. One that is the outermost begins
            // anew, also with the same id.
            if event.invocation.caller.is_some() && self.dead.contains(id) {
                self.left_out += 1;
                return;
            }
            self.begin(id, event);
        }
        self.change(id, |run, version| run.enter(event, version));
    }

    fn begin(&mut self, id: &Arc<str>, event: &Event) {
        let number = self.next;
        self.next += 1;
        let mut shown = id.clone();
        // Another run may have this very id as well.
        while self.by_shown_id.contains_key(&shown) {
            shown = format!("{shown}~{number}").into();
        }
        let mut run = Run::new(number, id.clone(), shown.clone(), event);
        run.left_out_before = self.left_out;
        self.bytes += run.bytes;
        self.runs.insert(number, run);
        self.by_id.insert(id.clone(), number);
        self.by_shown_id.insert(shown, number);
    }

    /// Drops the oldest runs until the others are within the limits. The last one stays: what it
    /// may hold alone is bounded where it grows.
    fn make_room(&mut self) {
        let Limits {
            mut runs,
            mut bytes,
            ..
        } = self.limits;
        if self.has_database {
            runs = runs.min(RECENT.runs);
            bytes = bytes.min(RECENT.bytes);
        }
        while self.runs.len() > runs.max(1) || self.bytes > bytes && self.runs.len() > 1 {
            let Some((&oldest, run)) = self.runs.first_key_value() else {
                return;
            };
            if !self.has_database {
                self.remove(oldest);
                self.gone += 1;
            } else if run.has_ended() && !self.unwritten.contains(&oldest) {
                // It has not gone: the database has it.
                self.take(oldest);
            } else {
                self.remove(oldest);
                self.unstored += 1;
            }
        }
        // One run that is larger than all together may be keeps its rows, and loses first what is
        // whole and then its texts.
        for leave_out in [Run::drop_kept, Run::drop_content] {
            if self.bytes > bytes
                && let Some(run) = self.runs.values_mut().next()
            {
                let before = run.bytes;
                leave_out(run);
                self.bytes -= before - run.bytes;
            }
        }
    }

    /// Drops the runs that are too old.
    pub(crate) fn drop_old(&mut self, now: SystemTime) {
        let Some(oldest) = self.limits.age.and_then(|age| now.checked_sub(age)) else {
            return;
        };
        let oldest = micros(oldest);
        let is_old = |run: &Summary| run.ended.unwrap_or(run.begun) < oldest;
        let runs = self.runs.values().map(|run| &run.summary);
        let old: Vec<_> = runs
            .filter(|run| is_old(run))
            .map(|run| run.number)
            .collect();
        self.gone += old.len() as u64;
        for number in old {
            self.remove(number);
        }
    }

    /// Returns the numbers of a user's runs.
    pub(crate) fn of_user(&self, user: &str) -> Vec<u64> {
        let runs = self.runs.values().map(|run| &run.summary);
        let own = runs.filter(|run| run.user.as_deref() == Some(user));
        own.map(|run| run.number).collect()
    }

    /// Returns whether more runs were removed since this version than are remembered.
    pub(crate) fn has_forgotten(&self, version: u64) -> bool {
        let first = self.removed.front();
        self.removed.len() >= REMOVED && first.is_some_and(|(removed, _)| *removed > version)
    }

    /// Removes a run that is here, and returns it.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Run> {
        let run = self.take(number)?;
        self.version += 1;
        push_bounded(&mut self.removed, (self.version, run.summary.id.clone()));
        if run.open > 0 {
            push_bounded(&mut self.dead, run.id.clone());
        }
        Some(run)
    }

    /// Takes a run out of memory.
    fn take(&mut self, number: u64) -> Option<Run> {
        let run = self.runs.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(run.bytes);
        self.by_shown_id.remove(&run.summary.id);
        self.unwritten.remove(&number);
        if self.by_id.get(&run.id) == Some(&number) {
            self.by_id.remove(&run.id);
        }
        Some(run)
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() >= REMOVED {
        list.pop_front();
    }
    list.push_back(item);
}
