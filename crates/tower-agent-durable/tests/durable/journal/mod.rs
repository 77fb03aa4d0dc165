//! Durable runs: what is replayed, what is made again, and what a kill leaves.

mod aborted;
mod away;
mod breaking;
mod compositions;
pub(crate) mod conformance;
mod crossings;
pub(crate) mod fate;
mod fingerprints;
mod full_disk;
pub(crate) mod kill;
mod lost_end;
pub(crate) mod place;
mod program;
pub(crate) mod questions;
mod races;
mod remembering;
mod replay;
pub(crate) mod rules;
mod runs;
mod secrets;
mod takeover;
mod torn;
mod versions;
pub(crate) mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tower_agent::message::ToolCall;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, BoxError, Effect, Error, ModelRequest, ModelResponse, Role,
    Tool,
};
use tower_agent_durable::journal::{Durable, Journal, JournalError};

/// Counts what is really done.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicU32>);

impl Count {
    pub(crate) fn one(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A model that calls these tools, one in each turn, and then says that it is done.
pub(crate) fn calling(
    tools: &'static [&'static str],
    calls: &Count,
) -> impl tower_agent::model::ModelService {
    let calls = calls.clone();
    tower::service_fn(move |request: ModelRequest| {
        calls.one();
        let results = request
            .messages()
            .iter()
            .filter(|it| it.role() == Role::Tool)
            .count();
        let response = match tools.get(results) {
            Some(tool) => ModelResponse::from_tool_calls([ToolCall::new(
                format!("c{results}"),
                *tool,
                json!({ "request": "x" }),
            )]),
            None => ModelResponse::from_text("Done."),
        };
        async { Ok::<_, BoxError>(response) }
    })
}

pub(crate) fn counting(name: &'static str, effect: Effect, calls: &Count) -> Tool {
    let calls = calls.clone();
    let tool = move |_: Value| {
        calls.one();
        format!("{name} done")
    };
    Tool::function(name, "Does it.", tool).effect(effect)
}

pub(crate) fn durable(
    model: impl tower_agent::model::ModelService,
    journal: impl Journal,
) -> AgentBuilder {
    Agent::builder(model)
        .name("agent")
        .global_callbacks(Durable::new(journal))
}

pub(crate) fn request() -> AgentRequest {
    AgentRequest::new("Do it.").with_run_id("run 1")
}

pub(crate) fn journal_error(error: &Error) -> &JournalError {
    error
        .downcast_ref()
        .unwrap_or_else(|| panic!("no error of the journal: {error}"))
}

pub(crate) fn saying(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}
