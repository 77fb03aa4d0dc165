//! Reading a run, and what is left of it when all that was taken back is gone.

use futures::StreamExt;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentResponse, Error, ErrorKind, Result};

pub(crate) fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

/// What a reader has before it at the end, message by message, and what the run has answered.
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
            EventKind::AttemptDiscarded { message } | EventKind::ResponseReplaced { message } => {
                texts.retain(|(id, _)| *id != &**message);
            }
            _ => {}
        }
    }
    texts.into_iter().map(|(_, text)| text).collect()
}
