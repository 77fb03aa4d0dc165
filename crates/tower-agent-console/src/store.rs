//! The runs in memory, within bounds: the oldest go first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tower_agent::stream::{Event, EventKind, Observation};

use crate::note::Note;
use crate::record::{Run, Status, Summary, micros};

/// What the store may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) runs: usize,
    pub(crate) bytes: usize,
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
    /// What was observed of runs that are not here.
    pub(crate) left_out: u64,
    /// Runs that have gone to make room.
    pub(crate) gone: u64,
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

    pub(crate) fn run(&self, id: &str) -> Option<&Run> {
        self.runs.get(self.by_shown_id.get(id)?)
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
        let Limits { runs, bytes } = self.limits;
        while self.runs.len() > runs.max(1) || self.bytes > bytes && self.runs.len() > 1 {
            let Some((number, run)) = self.runs.pop_first() else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(run.bytes);
            self.by_shown_id.remove(&run.summary.id);
            if self.by_id.get(&run.id) == Some(&number) {
                self.by_id.remove(&run.id);
            }
            self.gone += 1;
        }
        // One run that is larger than all together may be keeps its rows, and loses its texts.
        if self.bytes > bytes
            && let Some(run) = self.runs.values_mut().next()
        {
            run.drop_content();
            self.bytes = run.bytes;
        }
    }
}
