//! The runs in memory, within bounds: the oldest go first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tower_agent::stream::{Event, EventKind, Observation};

use crate::note::Note;
use crate::record::{Run, Status, Summary, micros};

/// The number of removed runs that are remembered.
const REMOVED: usize = 10_000;

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
    pub(crate) limits: Limits,
    /// The texts of errors and events are kept.
    pub(crate) has_content: bool,
    pub(crate) runs: BTreeMap<u64, Run>,
    /// The latest run with each id.
    by_id: HashMap<Arc<str>, u64>,
    /// Those with an id of their own, which they show.
    by_shown_id: HashMap<Arc<str>, u64>,
    pub(crate) bytes: usize,
    next: u64,
    /// Counts changes.
    pub(crate) version: u64,
    /// The number of things that were observed of runs that are not here.
    pub(crate) left_out: u64,
    /// Runs that have gone to make room, or were too old.
    pub(crate) gone: u64,
    /// The last runs that were removed, with the version of the change.
    pub(crate) removed: VecDeque<(u64, u64)>,
    /// The ids of removed runs that had not ended, the oldest first: what is still told of them is
    /// not to begin another one.
    dead: VecDeque<Arc<str>>,
}

/// A query for the list of runs.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) agent: Option<String>,
    pub(crate) status: Option<Status>,
    /// Only those with smaller numbers.
    pub(crate) before: Option<u64>,
    pub(crate) limit: usize,
}

impl Query {
    fn selects(&self, run: &Summary) -> bool {
        let is_agent = |agent: &String| {
            // The name of the agent that was called, or its path in another.
            *run.agent == **agent || run.agent.rsplit('/').next() == Some(agent)
        };
        self.agent.as_ref().is_none_or(is_agent)
            && self.status.is_none_or(|status| status == run.status)
    }
}

impl Store {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
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

    /// Returns a page of runs, the latest first, and whether there are more.
    pub(crate) fn list(&self, query: &Query) -> (Vec<&Summary>, bool) {
        let before = query.before.unwrap_or(u64::MAX);
        let runs = self.runs.range(..before).rev();
        let mut runs = runs
            .map(|(_, run)| &run.summary)
            .filter(|run| query.selects(run));
        let page: Vec<_> = runs.by_ref().take(query.limit).collect();
        let has_more = runs.next().is_some();
        (page, has_more)
    }

    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        self.by_shown_id.get(id).copied()
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
        self.change(&run, |run, version| run.note(agent, at, what, version));
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
        let run = Run::new(number, id.clone(), shown.clone(), event);
        self.bytes += run.bytes;
        self.runs.insert(number, run);
        self.by_id.insert(id.clone(), number);
        self.by_shown_id.insert(shown, number);
    }

    /// Drops the oldest runs until the others are within the limits. The last one stays: what it
    /// may hold alone is bounded where it grows.
    fn make_room(&mut self) {
        let Limits { runs, bytes, .. } = self.limits;
        while self.runs.len() > runs.max(1) || self.bytes > bytes && self.runs.len() > 1 {
            let Some(oldest) = self.runs.keys().next().copied() else {
                return;
            };
            self.remove(oldest);
            self.gone += 1;
        }
        // One run that is larger than all together may be keeps its rows, and loses its texts.
        if self.bytes > bytes
            && let Some(run) = self.runs.values_mut().next()
        {
            let before = run.bytes;
            run.drop_content();
            self.bytes -= before - run.bytes;
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
        old.into_iter().for_each(|number| self.remove(number));
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

    /// Removes a run that is here.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(run) = self.runs.remove(&number) else {
            return;
        };
        self.version += 1;
        self.bytes = self.bytes.saturating_sub(run.bytes);
        self.by_shown_id.remove(&run.summary.id);
        if self.by_id.get(&run.id) == Some(&number) {
            self.by_id.remove(&run.id);
        }
        push_bounded(&mut self.removed, (self.version, number));
        if run.open > 0 {
            push_bounded(&mut self.dead, run.id);
        }
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() >= REMOVED {
        list.pop_front();
    }
    list.push_back(item);
}
