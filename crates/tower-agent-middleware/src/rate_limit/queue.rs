use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::keyed::{Keyed, Need};
use crate::lock::lock;

/// The calls that wait for one limit. Keys take turns by what they use: start-time fair queueing,
/// where each call has a virtual start time, which is the end of the call of its key before.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    /// The virtual start of the last call that was let through.
    now: u64,
    lines: Keyed<Arc<str>, Line>,
    arrivals: u64,
}

/// The calls of one key.
#[derive(Debug, Default)]
struct Line {
    /// The virtual end of the last call that was let through.
    end: u64,
    waiting: VecDeque<Waiting>,
}

impl Line {
    fn need(&self, now: u64) -> Need {
        match self.end {
            _ if !self.waiting.is_empty() => Need::Calls,
            end if end > now => Need::Memory,
            // A line that is not behind the others says nothing.
            _ => Need::Nothing,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    arrival: u64,
    wake: Arc<Notify>,
}

impl QueueState {
    /// Returns the call that goes next.
    fn first(&self) -> Option<&Waiting> {
        let fronts = self.lines.iter().filter_map(|(_, line)| {
            let front = line.waiting.front()?;
            Some((line.end.max(self.now), front))
        });
        let first = fronts.min_by_key(|(start, front)| (*start, front.arrival));
        first.map(|(_, front)| front)
    }

    fn wake_first(&self) {
        if let Some(first) = self.first() {
            first.wake.notify_one();
        }
    }

    fn remove(&mut self, key: &Arc<str>, arrival: u64) {
        if let Some(line) = self.lines.get_mut(key) {
            line.waiting.retain(|waiting| waiting.arrival != arrival);
        }
    }
}

impl Queue {
    /// Adds a call to the line of its key.
    pub(super) fn enter(self: &Arc<Self>, key: Arc<str>) -> Ticket {
        let state = &mut *lock(&self.0);
        let now = state.now;
        state.arrivals += 1;
        let arrival = state.arrivals;
        let wake = Arc::<Notify>::default();
        let waiting = Waiting {
            arrival,
            wake: wake.clone(),
        };
        if let Some(line) = state.lines.get_mut(&key) {
            line.waiting.push_back(waiting);
        } else {
            let line = Line {
                end: 0,
                waiting: VecDeque::from([waiting]),
            };
            state.lines.insert(key.clone(), line, |line| line.need(now));
        }
        Ticket {
            queue: self.clone(),
            key,
            arrival,
            wake,
        }
    }

    /// Returns the number of calls that wait.
    pub(super) fn waiting(&self) -> usize {
        let state = lock(&self.0);
        state.lines.iter().map(|(_, line)| line.waiting.len()).sum()
    }

    /// Corrects the cost of a call that was let through, and lets the first call look again.
    pub(super) fn settle(&self, key: &str, reserved: u64, used: u64) {
        let mut state = lock(&self.0);
        if let Some(line) = state.lines.get_mut(key) {
            line.end = line.end.saturating_add(used).saturating_sub(reserved);
        }
        state.wake_first();
    }
}

/// The place of a call in a queue, until it is let through or dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    queue: Arc<Queue>,
    key: Arc<str>,
    arrival: u64,
    wake: Arc<Notify>,
}

impl Ticket {
    pub(super) fn is_first(&self) -> bool {
        let state = lock(&self.queue.0);
        state
            .first()
            .is_some_and(|first| first.arrival == self.arrival)
    }

    /// Returns when the call may have become the first, or something has been given back.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Lets the call through, which is to use this much.
    pub(super) fn pass(self, cost: u64) {
        let state = &mut *lock(&self.queue.0);
        if let Some(line) = state.lines.get_mut(&self.key) {
            let start = line.end.max(state.now);
            line.end = start.saturating_add(cost);
            state.now = start;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.0);
        state.remove(&self.key, self.arrival);
        state.wake_first();
    }
}
