//! What replayed calls have charged to the budgets of a run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::effects::Charge;
use crate::lock::lock;

/// A budget that replayed calls are charged to.
pub(crate) trait Charged: Send + Sync {
    /// Charges it for a call, except for what was charged for this call before. The names are those of the
    /// call and of the calls around it.
    fn charge(&self, calls: &[Arc<str>], charge: &Charge);
}

/// The budgets of a run by name, with what was charged before they were first used.
#[derive(Default)]
pub(super) struct Charges(Mutex<HashMap<Arc<str>, Entry>>);

#[derive(Default)]
struct Entry {
    /// Those that have this name; more than one cannot be told apart.
    budgets: Vec<(u64, Arc<dyn Charged>)>,
    pending: Vec<(Arc<[Arc<str>]>, Charge)>,
}

impl Charges {
    /// Adds a budget. `number` tells budgets of one name apart.
    pub(super) fn add(&self, name: &Arc<str>, number: u64, budget: Arc<dyn Charged>) {
        let pending = {
            let mut entries = lock(&self.0);
            let entry = entries.entry(name.clone()).or_default();
            if !entry.budgets.iter().any(|(other, _)| *other == number) {
                entry.budgets.push((number, budget.clone()));
            }
            std::mem::take(&mut entry.pending)
        };
        pending
            .iter()
            .for_each(|(calls, charge)| budget.charge(calls, charge));
    }

    /// Returns whether there are several budgets of this name.
    pub(super) fn are_several(&self, name: &str) -> bool {
        lock(&self.0)
            .get(name)
            .is_some_and(|entry| entry.budgets.len() > 1)
    }

    /// `calls` are the replayed call and those around it.
    pub(super) fn replay(&self, budget: &Arc<str>, calls: &Arc<[Arc<str>]>, charge: &Charge) {
        let known = {
            let mut entries = lock(&self.0);
            let entry = entries.entry(budget.clone()).or_default();
            let known = entry.budgets.first().map(|(_, known)| known.clone());
            if known.is_none() {
                entry.pending.push((calls.clone(), charge.clone()));
            }
            known
        };
        if let Some(known) = known {
            known.charge(calls, charge);
        }
    }
}
