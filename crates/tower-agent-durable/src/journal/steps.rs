use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tower_agent::RunContext;

use super::earlier_steps::EarlierSteps;
use super::error::JournalError;
use super::known_messages::KnownMessages;
use super::open_run::OpenRun;
use super::step_id::{StepId, StepKind};
use crate::lock::lock;

/// The key among the run's values.
const KEY: &str = "tower_agent_durable.steps";

/// The number of times that other members of a team may begin before a step is refused.
const TURNS: u32 = 8;

/// The steps of a run in this process.
pub(super) struct Steps {
    pub(super) run: OpenRun,
    /// The messages of the run's request.
    pub(super) known: Arc<KnownMessages>,
    /// The number of steps that this process has begun.
    begun: AtomicU32,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The number of steps so far of each name.
    counts: HashMap<StepId, u32>,
    /// The places of model calls that have failed.
    failed: HashSet<Arc<str>>,
    earlier: EarlierSteps,
}

impl Steps {
    /// Begins the steps of a run.
    pub(super) fn begin(
        context: &RunContext,
        run: OpenRun,
        known: Arc<KnownMessages>,
        earlier: EarlierSteps,
    ) {
        let seen = Seen {
            earlier,
            ..Seen::default()
        };
        let steps = Self {
            run,
            known,
            begun: AtomicU32::new(0),
            seen: Mutex::new(seen),
        };
        context.values().set(KEY, Arc::new(steps));
    }

    /// Notes that this process begins a step that the journal does not have, or again.
    pub(super) fn note_begun(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a step which has begun was not made, and is not in the journal.
    pub(super) fn note_unmade(&self) {
        self.begun.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether this process has begun a step.
    pub(super) fn have_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire) > 0
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
        let mut step = StepId {
            run: self.run.id.clone(),
            input: self.run.input,
            path,
            iteration: context.iteration(),
            kind,
            nth: 0,
        };
        // A tool call may stay open during several requests, in which the turns count on. It must
        // find its step and its values again, so neither the request nor the turn is part of their
        // names.
        if is_tool || is_value && context.tool_call_id().is_some() {
            step.input = self.run.conversation;
            step.iteration = 0;
        }
        // The path of a tool call has its id, so there is only one.
        if is_tool {
            return Ok(step);
        }
        let mut seen = self.seen();
        let count = seen.counts.entry(step.clone()).or_default();
        step.nth = *count;
        *count += 1;
        // Retries of the model are inside its step. A second step after a failed one comes from a
        // retry around the agent, which would read the stored results of the failed try.
        if step.kind == StepKind::Model && seen.failed.contains(&step.path) {
            return Err(JournalError::Repeated { step });
        }
        Ok(step)
    }

    /// Notes that a model call has failed, and with it its agent.
    pub(super) fn fail(&self, step: &StepId) {
        self.seen().failed.insert(step.path.clone());
    }

    /// Notes that an agent inside the outermost has begun.
    pub(super) fn enter(&self, context: &RunContext) {
        self.seen().earlier.enter(|| context.step_path());
    }

    /// Notes a step that the journal has.
    pub(super) fn reach(&self, step: &StepId, is_answered: bool) {
        self.seen().earlier.reach(step, is_answered);
    }

    /// Fails if a step that the journal does not have shows that the program is another one.
    pub(super) async fn check_new(&self, step: &StepId) -> Result<(), JournalError> {
        // Members of a team that run at once are polled one after another: those after the member
        // that makes this step must have their turn to begin.
        for _ in 0..TURNS {
            if self.missed_by(step).is_none() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        match self.missed_by(step) {
            None => Ok(()),
            Some(earlier) => Err(JournalError::OtherProgram {
                step: step.clone(),
                earlier: Box::new(earlier),
            }),
        }
    }

    fn missed_by(&self, step: &StepId) -> Option<StepId> {
        self.seen().earlier.missed_by(step).cloned()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl OpenRun {
    /// Returns the journaled run that a call belongs to, or `None` if its agent has no journal.
    #[must_use]
    pub fn of(context: &RunContext) -> Option<Self> {
        let steps = Steps::find(context)?;
        Some(steps.run.clone())
    }
}
