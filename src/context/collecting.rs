//! A call whose effects are collected, and one that has those of a call that was made before.

use std::sync::Arc;

use super::charges::Charged;
use super::effects::{Collected, EffectLog, Effects};
use super::run_context::RunContext;
use crate::call_kind::CallKind;
use crate::error::Error;
use crate::message::Usage;

impl RunContext {
    /// Returns this context for a call whose [`Effects`] are collected, and their log. `id` names the
    /// call among all calls of all runs.
    ///
    /// A layer passes it to the call inside; everything else about it is the same:
    ///
    /// ```
    /// use tower_agent::RunContext;
    ///
    /// let context = RunContext::default();
    /// let (inside, log) = context.collecting_effects("run 7, call 1");
    /// inside.state().set("paid", true);
    /// context.state().set("seen", true);
    /// let effects = log.effects();
    ///
    /// // In another process:
    /// let context = RunContext::default();
    /// context.apply_effects("run 7, call 1", &effects);
    /// assert_eq!(context.state().get("paid"), Some(true.into()));
    /// assert_eq!(context.state().get("seen"), None);
    /// ```
    #[must_use]
    pub fn collecting_effects(&self, id: impl Into<Arc<str>>) -> (Self, EffectLog) {
        let outer = self.effects.clone();
        let log = Collected::new(id.into(), outer, self.state(), self.private_state());
        let log = Arc::new(log);
        (
            Self {
                effects: Some(log.clone()),
                ..self.clone()
            },
            EffectLog(log),
        )
    }

    /// Applies the effects of a call that is not made again. What this process has already charged
    /// to a budget for the call `id` is not charged again.
    ///
    /// The run's [`values`](Self::values) are not part of them.
    pub fn apply_effects(&self, id: &str, effects: &Effects) {
        let Effects {
            usage,
            state,
            private_state,
            charges,
            escalated,
        } = effects;
        if *usage != Usage::default() {
            self.add_usage(*usage);
        }
        self.state().apply(state);
        self.private_state().apply(private_state);
        if *escalated {
            self.escalate();
        }
        if charges.is_empty() {
            return;
        }
        let around = self.effects.iter().flat_map(|log| log.ids().cloned());
        let calls: Arc<[Arc<str>]> = std::iter::once(id.into()).chain(around).collect();
        for (budget, charge) in charges {
            if let Some(log) = &self.effects {
                log.charge(budget, charge);
            }
            self.scope.run.charges.replay(budget, &calls, charge);
        }
    }

    /// Returns the ending that an `after` of this call, of this kind, has raised although the call has a
    /// response. It is not part of its effects.
    #[must_use]
    pub fn ending_after_response(&self, kind: CallKind) -> Option<Error> {
        self.ended_by(kind).filter(|_| !self.is_waiting(kind))
    }

    /// Returns whether this call, of this kind, waits for the answer to an interrupt, also if a layer
    /// has replaced the interrupt by a response: a resumed run makes it again.
    #[must_use]
    pub fn is_waiting(&self, kind: CallKind) -> bool {
        self.waits(kind)
    }

    /// Raises an ending of this call, which has a response, as its `after` did.
    pub fn end_after_response(&self, kind: CallKind, ending: &Error) {
        if ending.is_ending() {
            self.end(kind, ending, true);
        }
    }

    /// Returns the log of the innermost call whose effects are collected.
    pub(crate) fn effects(&self) -> Option<&Arc<Collected>> {
        self.effects.as_ref()
    }

    /// Adds a budget of the run. `number` tells budgets of one name apart.
    pub(crate) fn add_budget(&self, name: &Arc<str>, number: u64, budget: Arc<dyn Charged>) {
        self.scope.run.charges.add(name, number, budget);
    }

    /// Returns whether the run has several budgets of this name.
    pub(crate) fn has_budgets_of_one_name(&self, name: &str) -> bool {
        self.scope.run.charges.are_several(name)
    }
}
