//! The workload: a model that asks for a sum a number of times and then answers.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower::service_fn;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentBuilder, BoxError, Effect, Message, ModelRequest, ModelResponse, Part, Role, Tool,
    Usage,
};

/// The arguments of the tool.
#[derive(Deserialize, JsonSchema)]
pub struct Add {
    pub a: i64,
    pub b: i64,
}

/// What the model says to a conversation that began with one message.
pub fn answer(messages: &Messages, sums: usize) -> ModelResponse {
    let turn = messages.len() / 2;
    let message = if turn < sums {
        let call = ToolCall::new(format!("call_{turn}"), "add", json!({ "a": turn, "b": 1 }));
        Message::new(Role::Assistant, [Part::from(call)])
    } else {
        Message::assistant("done")
    };
    ModelResponse::new(message).with_usage(Usage::new(100, 10))
}

/// That model, as a service.
pub fn model(sums: usize) -> impl ModelService {
    service_fn(move |request: ModelRequest| async move {
        Ok::<_, BoxError>(answer(request.messages(), sums))
    })
}

/// The tool.
pub fn add() -> Tool {
    Tool::function("add", "Adds two numbers.", |Add { a, b }| a + b).effect(Effect::Pure)
}

/// An agent of the two.
pub fn agent(sums: usize) -> AgentBuilder {
    Agent::builder(model(sums)).tool(add()).max_iterations(u32::MAX)
}
