//! Ids of interrupts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The ids of a run's interrupts on the wire, by their own ids. They cannot be guessed, and are new
/// each time.
#[derive(Debug, Default)]
pub(crate) struct InterruptIds(Mutex<HashMap<String, Arc<str>>>);

impl InterruptIds {
    /// Returns the id of an interrupt on the wire.
    pub(crate) fn of(&self, interrupt: &str) -> Arc<str> {
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
