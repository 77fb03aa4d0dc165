//! Limits the runs at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::wire::{InputError, InputErrorKind};

/// The runs of a server. Cloning is O(1).
#[derive(Clone)]
pub(crate) struct Runs {
    max: usize,
    max_per_principal: usize,
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    all: usize,
    /// Without those that have none.
    of_principals: HashMap<Arc<str>, usize>,
}

/// The permission for one run, until it is dropped.
pub(crate) struct Permit {
    running: Arc<Mutex<Running>>,
    principal: Option<Arc<str>>,
}

impl Runs {
    pub(crate) fn new(max: usize, max_per_principal: usize) -> Self {
        Self {
            max,
            max_per_principal,
            running: Arc::default(),
        }
    }

    /// Permits a run.
    ///
    /// # Errors
    ///
    /// Fails if there are as many as may be.
    pub(crate) fn permit(&self, principal: Option<&Arc<str>>) -> Result<Permit, InputError> {
        let mut running = lock(&self.running);
        if running.all >= self.max {
            let why = format!("the server has {} runs at once; try again later", self.max);
            return Err(InputError::new(".", why).of(InputErrorKind::Overloaded));
        }
        if let Some(principal) = principal {
            let of_principal = running.of_principals.get(principal).copied();
            if of_principal.unwrap_or(0) >= self.max_per_principal {
                let why = format!(
                    "{} runs of yours are under way; try again when one has ended",
                    self.max_per_principal
                );
                return Err(InputError::new(".", why).of(InputErrorKind::TooManyRuns));
            }
            *running.of_principals.entry(principal.clone()).or_default() += 1;
        }
        running.all += 1;
        Ok(Permit {
            running: self.running.clone(),
            principal: principal.cloned(),
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut running = lock(&self.running);
        running.all -= 1;
        let Some(principal) = &self.principal else {
            return;
        };
        if let Some(runs) = running.of_principals.get_mut(principal) {
            *runs -= 1;
            // The map must not grow with every principal that was ever seen.
            if *runs == 0 {
                running.of_principals.remove(principal);
            }
        }
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("max", &self.max)
            .field("max_per_principal", &self.max_per_principal)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}
