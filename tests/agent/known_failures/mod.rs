//! What is known to go wrong in frameworks of this kind, and does not here: one test each.

mod closed;
mod limits;
mod order;
mod reach;
mod retries;
mod streams;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentResponse, Error, ErrorKind, Result, Tool};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

/// What happened, in order. Clones share it.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, note: impl ToString) {
        self.0.lock().unwrap().push(note.to_string());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn tool(&self, name: &'static str) -> Tool {
        let log = self.clone();
        Tool::function(name, "", move |arguments: Value| {
            log.note(format!("{name} {arguments}"));
            format!("{name} done")
        })
    }
}

async fn read(agent: &Agent) -> (Vec<Event>, Result<AgentResponse>) {
    let mut run = agent.stream("?");
    let events = run.by_ref().collect().await;
    (events, run.response().await)
}

/// Every word that was ever shown, taken back or not.
fn shown(events: &[Event]) -> String {
    let words = events.iter().filter_map(|event| match &event.kind {
        EventKind::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}

fn count(events: &[Event], is: fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}
