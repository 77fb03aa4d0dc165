//! The translate call: what an agent's events become, and what callbacks may make of it.

mod bands;
mod endings;
mod failures;
mod input;
mod order;
mod pauses;
mod properties;
mod round_trip;
mod table;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower_agent::Agent;
use tower_agent::agent::AgentService;
use tower_agent::compat::{CallbackSemantics, Semantics};
use tower_agent_agui::{
    AgUi, AgUiBuilder, AgUiRun, Event, EventKind, Message, RunAgentInput, RunError,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::rules;

/// The run `r` of the thread `t`, in which a user says `Hello`.
fn input() -> RunAgentInput {
    RunAgentInput::new("t", "r", [Message::user("u", "Hello")])
}

/// A run of a server that keeps its threads in memory.
fn started(server: &AgUi, input: RunAgentInput) -> AgUiRun {
    server.run(input).now_or_never().unwrap().unwrap()
}

/// Returns the events of a run, checked by the protocol's rules. Nothing in it waits for time.
fn run(server: &AgUi, input: RunAgentInput) -> Vec<Event> {
    let events = started(server, input).collect::<Vec<_>>();
    let events = events
        .now_or_never()
        .expect("the run goes on without waiting");
    rules::check("t", "r", &wire(&events)).unwrap();
    events
}

fn wire(events: &[Event]) -> Vec<Value> {
    events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .collect()
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.name()).collect()
}

/// Returns the events between the beginning and the end of the only step.
fn in_step(events: &[Event]) -> Vec<Value> {
    let of = |name| {
        events
            .iter()
            .position(|event| event.kind.name() == name)
            .unwrap()
    };
    wire(&events[of("STEP_STARTED") + 1..of("STEP_FINISHED")])
}

fn text(events: &[Event]) -> String {
    let deltas = events.iter().filter_map(|event| match &event.kind {
        EventKind::TextMessageContent { delta, .. } => Some(delta.as_str()),
        _ => None,
    });
    deltas.collect()
}

fn error(events: &[Event]) -> &RunError {
    match &events.last().unwrap().kind {
        EventKind::RunError(error) => error,
        other => panic!("the run ended with {other:?}"),
    }
}

fn customs(events: &[Event]) -> Vec<&str> {
    let names = events.iter().filter_map(|event| match &event.kind {
        EventKind::Custom { name, .. } => Some(&**name),
        _ => None,
    });
    names.collect()
}

/// A server that shows its clients what errors say.
fn open(agent: impl AgentService) -> AgUiBuilder {
    AgUi::builder(agent).failure_message(|error, _| Some(error.message().to_owned()))
}

/// A server of an agent that says `hi`.
fn greeter() -> AgUiBuilder {
    says([Turn::from_text("hi")])
}

fn says(turns: impl IntoIterator<Item = Turn>) -> AgUiBuilder {
    open(Agent::builder(ScriptedModel::new(turns)).build().unwrap())
}

/// Every preset: its name, what it does around a call, and what it does in an agent.
fn presets() -> [(&'static str, CallbackSemantics, Semantics); 8] {
    let trpc = CallbackSemantics::trpc;
    [
        (
            "default",
            CallbackSemantics::default(),
            Semantics::default(),
        ),
        ("potato", CallbackSemantics::potato(), Semantics::potato()),
        (
            "adk_python",
            CallbackSemantics::adk_python(),
            Semantics::adk_python(),
        ),
        (
            "adk_elixir",
            CallbackSemantics::adk_elixir(),
            Semantics::adk_elixir(),
        ),
        ("trpc", trpc(false, false), Semantics::trpc()),
        ("trpc, on error", trpc(true, false), Semantics::trpc()),
        ("trpc, on response", trpc(false, true), Semantics::trpc()),
        ("trpc, on both", trpc(true, true), Semantics::trpc()),
    ]
}

fn content(id: &str, delta: &str) -> Value {
    json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": delta })
}
