//! The steps that earlier processes have made for a request, and this one has to come to.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::step_id::{StepId, StepKind};

/// The steps of a run's latest request from before this process started it.
///
/// A program that is the one that made them comes to all of them again. One whose agents have other
/// names makes steps of other names instead, and would pay for all of them twice.
#[derive(Default)]
pub(super) struct EarlierSteps {
    /// The paths of all of them.
    paths: BTreeSet<Arc<str>>,
    /// The steps that this process has not come to, by path and name.
    unreached: BTreeMap<(Arc<str>, String), StepId>,
    /// The agents whose model has answered here. What the callbacks of that call did is not
    /// repeated.
    answered: HashSet<Arc<str>>,
    /// The agents that have begun here.
    entered: HashSet<Arc<str>>,
}

impl EarlierSteps {
    pub(super) fn new(steps: Vec<StepId>) -> Self {
        let mut earlier = Self::default();
        for step in steps {
            // The program comes to a value only if it makes the call that the value is for.
            if matches!(step.kind, StepKind::Value(_)) {
                continue;
            }
            earlier.paths.insert(step.path.clone());
            earlier
                .unreached
                .insert((step.path.clone(), step.key()), step);
        }
        earlier
    }

    /// Notes that an agent has begun.
    pub(super) fn enter(&mut self, path: impl FnOnce() -> String) {
        if !self.unreached.is_empty() {
            self.entered.insert(path().into());
        }
    }

    /// Notes a step that the journal has. If its answer is known, the program does not come to the
    /// steps inside.
    pub(super) fn reach(&mut self, step: &StepId, is_answered: bool) {
        if self.unreached.is_empty() {
            return;
        }
        self.unreached.remove(&(step.path.clone(), step.key()));
        if !is_answered {
            return;
        }
        if step.kind == StepKind::Model {
            self.answered.insert(step.path.clone());
            return;
        }
        let inside = format!("{}/", step.path);
        let first = (Arc::from(&*inside), String::new());
        let keys = self.unreached.range(first..).map(|(key, _)| key);
        let keys: Vec<_> = keys
            .take_while(|(path, _)| path.starts_with(&inside))
            .cloned()
            .collect();
        for key in keys {
            self.unreached.remove(&key);
        }
    }

    /// Returns an earlier step that a program which makes this new one can no longer come to.
    pub(super) fn missed_by(&self, new: &StepId) -> Option<&StepId> {
        self.unreached
            .values()
            .find(|earlier| self.is_missed(earlier, new))
    }

    fn is_missed(&self, earlier: &StepId, new: &StepId) -> bool {
        let there = segments(&earlier.path);
        let here = segments(&new.path);
        if self.is_aside(&there) {
            return false;
        }
        let shared = there.iter().zip(&here).take_while(|(a, b)| a == b).count();
        match (there.get(shared), here.get(shared)) {
            // The new step contains the earlier one: it is still to come.
            (Some(next), None) => match new.kind {
                StepKind::Model => call_of(next).is_some(),
                StepKind::Tool(_) | StepKind::Value(_) => false,
            },
            (Some(there), Some(here)) => {
                if let (Some(there), Some(here)) = (call_of(there), call_of(here)) {
                    // Calls of one turn run at once.
                    return there != here;
                }
                if agent_of(there) == agent_of(here) {
                    return false;
                }
                self.has_other_members(&earlier.path, &new.path, shared)
            }
            // Of the same agent or call, or of one around it.
            (None, _) => true,
        }
    }

    /// Returns whether a path is that of an agent which a callback of an answered model call has
    /// called.
    fn is_aside(&self, path: &[&str]) -> bool {
        (1..path.len()).any(|depth| {
            let is_agent = call_of(path[depth]).is_none();
            is_agent && self.answered.contains(&*path[..depth].join("/"))
        })
    }

    /// Returns whether the earlier step is of an agent that has not begun, and the new one of an
    /// agent that had made none. Otherwise they can be members of a team that run at once.
    fn has_other_members(&self, earlier: &str, new: &str, shared: usize) -> bool {
        let there = segments(earlier)[..=shared].join("/");
        let here = segments(new)[..=shared].join("/");
        !self.entered.contains(&*there) && !self.paths.iter().any(|path| is_within(path, &here))
    }
}

/// Returns whether a path is another one, or inside of it.
fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other)
        .is_some_and(|end| end.is_empty() || end.starts_with('/') && !end.starts_with("//"))
}

/// Returns the agents and tool calls of a path. `worker//2` is one of them: the second of its name.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let mut start = 0;
    let mut number = false;
    for (at, _) in path.match_indices('/') {
        if number {
            number = false;
        } else if path[at..].starts_with("//") {
            number = true;
        } else {
            segments.push(&path[start..at]);
            start = at + 1;
        }
    }
    segments.push(&path[start..]);
    segments
}

/// Returns the message of a tool call, whose name ends with its place there; `None` for an agent.
fn call_of(segment: &str) -> Option<&str> {
    let (message, index) = segment.rsplit_once('.')?;
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(message)
}

/// Returns the name of an agent without its number.
fn agent_of(segment: &str) -> &str {
    segment.split("//").next().unwrap_or(segment)
}
