use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::thread::OpenInterrupt;
use crate::lock::lock;

/// The ids of a run's interrupts for its client. They cannot be guessed. An interrupt keeps its id
/// while it is open; each new one has a new id.
///
/// Clones share the ids.
///
/// ```
/// use tower_agent_conversations::InterruptIds;
///
/// let ids = InterruptIds::default();
/// assert_eq!(ids.of("agent/call_1"), ids.clone().of("agent/call_1"));
/// assert_ne!(ids.of("agent/call_1"), InterruptIds::default().of("agent/call_1"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct InterruptIds(Arc<Mutex<HashMap<String, Arc<str>>>>);

impl InterruptIds {
    /// Returns the ids of a run before which these interrupts are open.
    pub(crate) fn of_open(open: &[OpenInterrupt]) -> Self {
        let ids = open
            .iter()
            .map(|open| (open.interrupt.id.clone(), open.id.clone()));
        Self(Arc::new(Mutex::new(ids.collect())))
    }

    /// Returns the client's id of an [interrupt](tower_agent::Interrupt::id).
    #[must_use]
    pub fn of(&self, interrupt: &str) -> Arc<str> {
        let mut ids = lock(&self.0);
        if let Some(id) = ids.get(interrupt) {
            return id.clone();
        }
        // At random, and not from the run as other ids: who knows it may answer the question.
        let id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        ids.insert(interrupt.to_owned(), id.clone());
        id
    }
}
