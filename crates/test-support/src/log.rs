//! A log of events, in order.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tower_agent::Tool;

/// The log, in order. Clones share it.
#[derive(Debug)]
pub struct Log<T = String>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Log<T> {
    pub fn push(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    /// Takes all entries so far.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl<T: Clone> Log<T> {
    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

impl Log {
    pub fn note(&self, entry: impl ToString) {
        self.push(entry.to_string());
    }

    /// Returns a function that logs this.
    pub fn line(&self, entry: &str) -> impl Fn() + Clone + Send + Sync + use<> {
        let log = self.clone();
        let entry = entry.to_owned();
        move || log.note(&entry)
    }

    /// Creates a tool that logs its name and arguments, and returns that it is done.
    pub fn tool(&self, name: &'static str) -> Tool {
        let log = self.clone();
        Tool::function(name, "", move |arguments: Value| {
            log.note(format!("{name} {arguments}"));
            format!("{name} done")
        })
    }
}
