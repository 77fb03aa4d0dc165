//! Helpers for the tests of journals: of the databases here, and of the engines in crates of their
//! own.

pub(crate) mod answers;
pub(crate) mod conformance;
pub(crate) mod fate;
pub(crate) mod folder;
pub(crate) mod kills;
pub(crate) mod place;
pub(crate) mod server;
pub(crate) mod stops;
pub(crate) mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, BoxError, Effect, Error, ModelRequest, ModelResponse, Role,
    Tool,
};
use tower_agent_durable::journal::{Durable, Journal, JournalError};
use tower_agent_test::{ScriptedModel, Turn};

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
            .filter(|message| message.role() == Role::Tool)
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

/// A tool that waits until it is told to return.
pub(crate) fn waiting(count: &Count) -> (Tool, Arc<Notify>, oneshot::Receiver<()>) {
    waiting_as("pay", count)
}

/// One of this name.
pub(crate) fn waiting_as(
    name: &'static str,
    count: &Count,
) -> (Tool, Arc<Notify>, oneshot::Receiver<()>) {
    let (notify, count) = (Arc::<Notify>::default(), count.clone());
    let (begun, has_begun) = oneshot::channel();
    let begun = std::sync::Mutex::new(Some(begun));
    let wait = notify.clone();
    let tool = move |_: Value| {
        count.one();
        let begun = begun.lock().unwrap().take();
        let wait = wait.clone();
        async move {
            begun.map(|begun| begun.send(()));
            wait.notified().await;
            "paid"
        }
    };
    (Tool::function(name, "Does it.", tool), notify, has_begun)
}
