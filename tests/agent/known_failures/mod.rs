//! What is known to go wrong in frameworks of this kind, and does not here: one test each.

mod closed;
mod limits;
mod order;
mod reach;
mod retries;
mod streams;

use std::time::Duration;

use futures::StreamExt;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentResponse, Error, ErrorKind, Result};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
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
