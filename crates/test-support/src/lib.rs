//! Support for the tests of several crates.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "it is not published"
)]

/// The README's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub mod call;
pub mod ended;
pub mod log;
pub mod logger;
pub mod process;
pub mod property;
pub mod runs;
pub mod store;
pub mod team;
pub mod trace;
pub mod traces;
pub mod transcript;
pub mod wrappers;

use futures::StreamExt;
use tower::ServiceExt;
use tower_agent::model::ModelService;
use tower_agent::stream::{Delta, Event, EventKind, channel};
use tower_agent::{BoxError, Error, ModelRequest, ModelResponse};

/// Calls a model without a sink.
pub async fn call<M: ModelService>(
    model: M,
    request: ModelRequest,
) -> Result<ModelResponse, Error> {
    model
        .oneshot(request)
        .await
        .map_err(|error| Error::from(Into::<BoxError>::into(error)))
}

/// Calls a model with a sink, and reads the events.
pub async fn stream<M: ModelService>(
    model: M,
    request: ModelRequest,
) -> (Result<ModelResponse, Error>, Vec<Event>) {
    let (sink, events) = channel(4);
    futures::join!(
        call(model, request.with_delta_sender(sink)),
        events.collect()
    )
}

/// Returns the deltas in these events, with the tool calls of each message numbered.
pub fn deltas(events: impl IntoIterator<Item = Event>) -> Vec<Delta> {
    let mut deltas = Vec::new();
    let mut calls = Vec::new();
    let mut current_message = None;
    for event in events {
        match event.kind {
            EventKind::TextDelta { text, .. } => deltas.push(Delta::Text(text)),
            EventKind::ReasoningDelta { text, .. } => deltas.push(Delta::Reasoning(text)),
            EventKind::ToolCallStart(call) => {
                // Events name a call by its id, and deltas by its number in the message.
                let message = call.message;
                if current_message.replace(message.clone()) != Some(message) {
                    calls.clear();
                }
                calls.push(call.id);
                deltas.push(Delta::ToolCall {
                    index: calls.len() - 1,
                    id: call.call_id,
                    name: call.name,
                });
            }
            EventKind::ToolCallDelta { id, json } => {
                let index = calls
                    .iter()
                    .rposition(|call| *call == id)
                    .expect("the call has begun");
                deltas.push(Delta::Arguments { index, json });
            }
            _ => {}
        }
    }
    deltas
}

pub fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

pub fn begins(index: usize, id: &str, name: &str) -> Delta {
    Delta::ToolCall {
        index,
        id: id.into(),
        name: name.into(),
    }
}

pub fn arguments(index: usize, json: &str) -> Delta {
    Delta::Arguments {
        index,
        json: json.into(),
    }
}
