use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tower_agent::RunContext;

use super::error::JournalError;
use super::journal::OpenRun;
use super::step_id::{StepId, StepKind};
use crate::lock::lock;

/// The key among the run's values.
const KEY: &str = "tower_agent_durable.steps";

/// The steps of a run in this process.
pub(super) struct Steps {
    pub(super) run: OpenRun,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// How many steps of one name there were.
    counts: HashMap<StepId, u32>,
    /// The places of model calls that have failed.
    failed: HashSet<Arc<str>>,
}

impl Steps {
    /// Begins the steps of a run.
    pub(super) fn begin(context: &RunContext, run: OpenRun) {
        let steps = Self {
            run,
            seen: Mutex::default(),
        };
        context.values().set(KEY, Arc::new(steps));
    }

    /// Returns the steps of the run that a call belongs to.
    pub(super) fn of(
        context: &RunContext,
        call: impl FnOnce() -> String,
    ) -> Result<Arc<Self>, JournalError> {
        Self::find(context).ok_or_else(|| JournalError::NoRun {
            call: call(),
            why: Cow::Borrowed("pass the journal to `global_callbacks` of the outermost agent, or to \
                  `with_callbacks` of its request; a layer must pass on the request that it received"),
        })
    }

    /// Returns the steps of the run that a call belongs to, if it is journaled.
    pub(super) fn find(context: &RunContext) -> Option<Arc<Self>> {
        let steps = context.values().get::<Arc<Self>>(KEY).ok().flatten()?;
        Some((*steps).clone())
    }

    /// Names a step.
    pub(super) fn name(
        &self,
        kind: StepKind,
        context: &RunContext,
    ) -> Result<StepId, JournalError> {
        let path: Arc<str> = context.step_path().into();
        let is_tool = matches!(kind, StepKind::Tool(_));
        let is_value = matches!(kind, StepKind::Value(_));
        // A tool call may stay open during several requests, and keeps its values.
        let (input, iteration) = match is_tool || is_value && context.tool_call_id().is_some() {
            true => (self.run.conversation, 0),
            false => (self.run.input, context.iteration()),
        };
        let mut step = StepId {
            run: self.run.id.clone(),
            input,
            path,
            iteration,
            kind,
            nth: 0,
        };
        if is_tool {
            return Ok(step);
        }
        let mut seen = self.seen();
        let count = seen.counts.entry(step.clone()).or_default();
        step.nth = *count;
        *count += 1;
        match step.kind == StepKind::Model && seen.failed.contains(&step.path) {
            true => Err(JournalError::Repeated { step }),
            false => Ok(step),
        }
    }

    /// Notes that a model call has failed, and with it its agent.
    pub(super) fn fail(&self, step: &StepId) {
        self.seen().failed.insert(step.path.clone());
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}
