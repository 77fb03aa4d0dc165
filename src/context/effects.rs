//! What a call changes in its run besides returning a response.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::lock::lock;
use crate::message::Usage;
use crate::state::{LoggedChanges, State, StateLog};

/// What a call has changed in its run besides returning a response: the tokens that it used, the
/// state and the private state, what budgets were charged, and whether it has ended its agent.
///
/// It serialises, so that a call that is answered from a journal has the effects of the call that
/// was made. Store it where the user can neither read nor change it, as a
/// [`Checkpoint`](super::Checkpoint): it contains changes of the private state.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Effects {
    #[serde(skip_serializing_if = "is_default")]
    pub(super) usage: Usage,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) state: LoggedChanges,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) private_state: LoggedChanges,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) charges: BTreeMap<Arc<str>, Charge>,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) escalated: bool,
}

/// Amounts by their names.
pub(crate) type Charge = BTreeMap<String, u64>;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Effects {
    /// Returns the tokens that were used, failed attempts included.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }
}

impl fmt::Debug for Effects {
    /// Omits the private state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects")
            .field("usage", &self.usage)
            .field("state", &self.state)
            .field("charges", &self.charges)
            .field("escalated", &self.escalated)
            .finish_non_exhaustive()
    }
}

/// Collects the [`Effects`] of one call, and of everything in it; created by
/// [`RunContext::collecting_effects`](super::RunContext::collecting_effects).
#[derive(Clone)]
pub struct EffectLog(pub(super) Arc<Collected>);

pub(crate) struct Collected {
    /// Names the call, so that nothing is charged twice for it.
    id: Arc<str>,
    usage: Mutex<Usage>,
    charges: Mutex<BTreeMap<Arc<str>, Charge>>,
    escalated: AtomicBool,
    pub(super) state: State,
    pub(super) private_state: State,
    state_log: Arc<StateLog>,
    private_log: Arc<StateLog>,
    /// The log of a call around this one.
    outer: Option<Arc<Self>>,
}

impl EffectLog {
    /// Returns the effects so far.
    #[must_use]
    pub fn effects(&self) -> Effects {
        let log = &*self.0;
        Effects {
            usage: *lock(&log.usage),
            state: log.state_log.changes(),
            private_state: log.private_log.changes(),
            charges: lock(&log.charges).clone(),
            escalated: log.escalated.load(Ordering::Acquire),
        }
    }
}

impl fmt::Debug for EffectLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EffectLog").field(&self.effects()).finish()
    }
}

impl Collected {
    /// Creates the log of a call, which is part of an `outer` one, in a run with this data.
    pub(super) fn new(
        id: Arc<str>,
        outer: Option<Arc<Self>>,
        state: &State,
        private_state: &State,
    ) -> Self {
        let within = |log: fn(&Self) -> &Arc<StateLog>| {
            Arc::new(StateLog::within(
                outer.as_deref().map(|outer| log(outer).clone()),
            ))
        };
        let (state_log, private_log) =
            (within(|log| &log.state_log), within(|log| &log.private_log));
        Self {
            id,
            usage: Mutex::default(),
            charges: Mutex::default(),
            escalated: AtomicBool::new(false),
            state: state.logged(state_log.clone()),
            private_state: private_state.logged(private_log.clone()),
            state_log,
            private_log,
            outer,
        }
    }

    fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |log| log.outer.as_deref())
    }

    pub(super) fn add_usage(&self, usage: Usage) {
        self.each().for_each(|log| *lock(&log.usage) += usage);
    }

    pub(super) fn escalate(&self) {
        self.each()
            .for_each(|log| log.escalated.store(true, Ordering::Release));
    }

    /// Adds what was charged to a budget of this name.
    pub(crate) fn charge(&self, budget: &Arc<str>, charge: &Charge) {
        for log in self.each() {
            let mut charges = lock(&log.charges);
            let sum = charges.entry(budget.clone()).or_default();
            for (amount, more) in charge {
                let amount = sum.entry(amount.clone()).or_default();
                *amount = amount.saturating_add(*more);
            }
        }
    }

    /// Returns the names of the call and of those around it.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.each().map(|log| &log.id)
    }
}
