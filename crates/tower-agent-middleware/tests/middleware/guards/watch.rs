//! Reading a run, and what is left of it when all that was taken back is
//! gone.

use std::time::Duration;

use futures::StreamExt;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentResponse, Error, ErrorKind, Result};

pub(crate) fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

/// The reader's text at the end, message by message, and the run's answer.
pub(crate) async fn read(agent: &Agent) -> (Vec<String>, Result<AgentResponse>) {
    let mut run = agent.stream("?");
    let events: Vec<_> = run.by_ref().collect().await;
    (left(&events), run.response().await)
}

/// The texts that were seen and not taken back.
pub(crate) fn left(events: &[Event]) -> Vec<String> {
    let mut texts: Vec<(&str, String)> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::TextStart { message } => texts.push((message, String::new())),
            EventKind::TextDelta { message, text } => {
                let (_, so_far) = texts.iter_mut().find(|(id, _)| *id == &**message).unwrap();
                so_far.push_str(text);
            }
            EventKind::AttemptDiscarded { message, .. }
            | EventKind::ResponseReplaced { message } => {
                texts.retain(|(id, _)| *id != &**message);
            }
            _ => {}
        }
    }
    texts.into_iter().map(|(_, text)| text).collect()
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) async fn read_events(agent: &Agent) -> (Vec<Event>, Result<AgentResponse>) {
    let mut run = agent.stream("?");
    let events = run.by_ref().collect().await;
    (events, run.response().await)
}

/// Every word that was ever shown, taken back or not.
pub(crate) fn shown(events: &[Event]) -> String {
    let words = events.iter().filter_map(|event| match &event.kind {
        EventKind::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}

pub(crate) fn count(events: &[Event], is: fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}
