//! The workload: a model that calls a tool a number of times and then responds.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use schemars::JsonSchema;
use serde::Deserialize;
use tower::service_fn;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::model::ModelService;
use tower_agent::{
    Action, Agent, AgentBuilder, BoxError, Callback, Effect, Message, ModelRequest, ModelResponse,
    Part, Request, Result, Role, Tool, Usage,
};

/// Tool calls of a run; there is one more model call.
pub const SUMS: usize = 19;

/// Runs a future that never waits.
pub fn finish<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Async in both phases, and using its arguments.
pub struct Hooks;

impl<R: Request> Callback<R> for Hooks {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        std::future::ready(()).await;
        black_box(request);
        Ok(Action::Continue)
    }

    async fn after(&self, request: &R, response: &R::Response) -> Result<Action<R::Response>> {
        std::future::ready(()).await;
        black_box((request, response));
        Ok(Action::Continue)
    }
}

/// The arguments of the tool.
#[derive(Deserialize, JsonSchema)]
pub struct Add {
    pub a: i64,
    pub b: i64,
}

/// The model's response to a conversation that started with one message.
pub fn answer(messages: &Messages, sums: usize) -> ModelResponse {
    let turn = messages.len() / 2;
    let message = if turn < sums {
        Message::new(Role::Assistant, [call(turn)])
    } else {
        Message::assistant("done")
    };
    ModelResponse::new(message).with_usage(Usage::new(100, 10))
}

/// A call of the tool. As from a provider, the arguments are text.
fn call(number: usize) -> Part {
    let arguments = format!(r#"{{"a":{number},"b":1}}"#);
    ToolCall::from_text(format!("call_{number}"), "add", arguments).into()
}

/// A model that makes so many calls of the tool in one turn, and then responds.
pub fn at_once(sums: usize) -> impl ModelService {
    service_fn(move |request: ModelRequest| async move {
        if request.messages().len() > 1 {
            return Ok::<_, BoxError>(ModelResponse::from_text("done"));
        }
        let calls = (0..sums).map(call);
        Ok(ModelResponse::new(Message::new(Role::Assistant, calls)))
    })
}

/// The model as a service.
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
    Agent::builder(model(sums))
        .tool(add())
        .max_iterations(u32::MAX)
}
