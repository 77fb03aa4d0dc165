//! Changes that a call makes in its run besides returning a response.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::lock::lock;
use crate::message::Usage;
use crate::state::{LoggedChanges, State};

/// The effects of a call on its run, besides its response: the tokens that it used, the
/// state and the private state, the amounts that were recorded, and whether it has ended its agent.
///
/// It serialises, so that a call that is answered from a journal has the effects of the call that
/// was made. Store it where the user can neither read nor change it, as a
/// [`Checkpoint`](crate::Checkpoint): it contains changes of the private state.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Effects {
    // Required, as are the amounts: without them, a call that is replayed would cost nothing.
    pub(super) usage: Usage,
    #[serde(default, skip_serializing_if = "LoggedChanges::is_empty")]
    pub(super) state: LoggedChanges,
    #[serde(default, skip_serializing_if = "LoggedChanges::is_empty")]
    pub(super) private_state: LoggedChanges,
    pub(super) amounts: BTreeMap<Arc<str>, Amounts>,
    pub(super) escalated: bool,
}

/// Amounts that a call has used, by what was used: see [`EffectLog::record`].
pub type Amounts = BTreeMap<String, u64>;

impl Effects {
    /// Returns the tokens that were used, failed attempts included.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns whether the call has changed nothing in its run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Usage> for Effects {
    /// Creates the effects of a call that has used tokens and has changed nothing else.
    fn from(usage: Usage) -> Self {
        Self {
            usage,
            ..Self::default()
        }
    }
}

impl fmt::Debug for Effects {
    /// Omits the private state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects")
            .field("usage", &self.usage)
            .field("state", &self.state)
            .field("amounts", &self.amounts)
            .field("escalated", &self.escalated)
            .finish_non_exhaustive()
    }
}

/// Collects the [`Effects`] of one call, and of everything in it.
#[derive(Clone)]
pub struct EffectLog(pub(super) Arc<Collected>);

pub(super) struct Collected {
    /// Names the call, so that nothing is charged twice for it.
    pub(super) id: Arc<str>,
    /// Without those on the states.
    pub(super) effects: Mutex<Effects>,
    /// The states of the run, by handles whose changes are logged.
    pub(super) state: State,
    pub(super) private_state: State,
    pub(super) outer: Option<EffectLog>,
}

impl EffectLog {
    /// Records amounts under `name` as an effect of this call and of those around it, in addition
    /// to what is recorded there.
    ///
    /// **When:** something that counts across calls, such as a budget or a quota, has counted for
    /// this call. When the effects are applied in another process, the amounts are handed to the
    /// handler that [`on_replay`](Self::on_replay) has registered under the name.
    pub fn record(&self, name: &Arc<str>, amounts: &Amounts) {
        // In every call around it, since any of them may be the one that is replayed.
        for log in self.around() {
            let mut effects = lock(&log.0.effects);
            let sum = effects.amounts.entry(name.clone()).or_default();
            for (amount, more) in amounts {
                let amount = sum.entry(amount.clone()).or_default();
                *amount = amount.saturating_add(*more);
            }
        }
    }

    /// Returns the ids of this call and of the calls around it, innermost first. They tell a
    /// handler what it has counted in this process already.
    pub fn calls(&self) -> impl Iterator<Item = &Arc<str>> {
        self.around().map(|log| &log.0.id)
    }

    /// Returns the effects so far.
    #[must_use]
    pub fn effects(&self) -> Effects {
        let log = &*self.0;
        Effects {
            state: log.state.logged_changes(),
            private_state: log.private_state.logged_changes(),
            ..lock(&log.effects).clone()
        }
    }

    pub(super) fn add_usage(&self, usage: Usage) {
        self.around()
            .for_each(|log| lock(&log.0.effects).usage += usage);
    }

    pub(super) fn escalate(&self) {
        self.around()
            .for_each(|log| lock(&log.0.effects).escalated = true);
    }

    /// Returns this log and those of the calls around it, from the inside out.
    fn around(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |log| log.0.outer.as_ref())
    }
}

impl fmt::Debug for EffectLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EffectLog").field(&self.effects()).finish()
    }
}
