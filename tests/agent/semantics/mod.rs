//! `Semantics`: one test for each answer to each question, through a whole run and a tree of
//! agents.

mod answers;
mod bounds;
mod global_callbacks;
mod pauses;
mod tools;
mod tree;

use serde_json::{Value, json};
use tower_agent::callback::LoopRules;
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::{AgentResponse, Message, ModelResponse, Part, Role, Tool};

pub(crate) fn with(change: impl FnOnce(&mut LoopRules)) -> Semantics {
    let mut semantics = Semantics::default();
    change(&mut semantics.run);
    semantics
}

pub(crate) fn echo() -> Tool {
    Tool::function("echo", "Says it again.", |value: Value| value)
}

/// A response that asks for a tool.
pub(crate) fn asks(text: &str, tool: &str) -> ModelResponse {
    let call = Part::ToolCall(ToolCall::new("given", tool, json!("hi")));
    ModelResponse::new(Message::new(Role::Assistant, [Part::from_text(text), call]))
}

pub(crate) fn texts(response: &AgentResponse) -> Vec<String> {
    response.messages().iter().map(Message::text).collect()
}

/// The results of its tool calls that the model has read.
pub(crate) fn results(response: &AgentResponse) -> Vec<String> {
    response
        .new_messages()
        .flat_map(Message::tool_results)
        .map(|result| result.text())
        .collect()
}
