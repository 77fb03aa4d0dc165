//! What an engineer who knows axum meets in the first hour.

use std::time::Duration;

use serde_json::json;
use tower::buffer::Buffer;
use tower::limit::{ConcurrencyLimitLayer, RateLimitLayer};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_agent::guard::fallback::Fallback;
use tower_agent::guard::retry::RetryLayer;
use tower_agent::guard::timeout::TimeoutLayer;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, AgentService, BoxAgent, BoxTool, Callbacks, Effect, Error, ErrorKind,
    ModelRequest, ModelService, Tool, ToolCall, ToolRequest, ToolService, before_model,
    before_tool, wrap_model, wrap_tool,
};

const MINUTE: Duration = Duration::from_secs(60);

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::text(text))
}

/// A rate limit is not `Clone`, so that it stands under a buffer; whatever the service is.
fn slow_model(model: impl ModelService) -> impl ModelService {
    Buffer::new(RateLimitLayer::new(9, MINUTE).layer(model), 8)
}

fn slow_tool(tool: impl ToolService) -> impl ToolService {
    Buffer::new(tool, 8)
}

fn slow_agent(agent: impl AgentService) -> impl AgentService {
    Buffer::new(agent, 8)
}

#[tokio::test]
async fn a_buffer_takes_whatever_is_a_model_a_tool_or_an_agent() {
    let model = slow_model(says("hi"));
    let echo = Tool::function("echo", "Says it again.", |text: String| text);
    let tool = slow_tool(echo.clone().into_service());
    let request = ToolRequest::new(ToolCall::new("call", "echo", json!({ "value": "a" })));
    let answer = BoxTool::new(tool).oneshot(request).await.unwrap();
    assert_eq!(answer.value(), "a");
    let agent = Agent::builder(slow_model(model)).build().unwrap();
    let response = BoxAgent::new(slow_agent(agent)).oneshot(AgentRequest::new("?")).await.unwrap();
    assert_eq!(response.text(), "hi");
}

#[test]
fn explain_shows_each_layer_of_a_stack_each_model_of_a_fallback_and_the_names_of_wraps() {
    let stack = ServiceBuilder::new().concurrency_limit(4).layer(RetryLayer::new());
    let attempt = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .timeout(MINUTE)
        .layer(before_model(|_| ()))
        .service(says("a"));
    let pass = wrap_model(|request, mut next| async move { next.run(request).await });
    let list = Callbacks::new()
        .with(before_model(|_| ()).named("brief"))
        .with(before_model(|_| ()).named("polite"));
    let tool = Tool::function("look", "Looks.", |_: ()| ())
        .layer(ServiceBuilder::new().timeout(MINUTE).concurrency_limit(1).into_inner())
        .layer(wrap_tool(|request, mut next| async move { next.run(request).await }).named("timed"))
        .layer(Callbacks::new().with(before_tool(|_| ()).named("polite")));
    let agent = Agent::builder(Fallback::new(attempt).or(says("b")).or_each([says("c")]))
        .model_layer(stack.into_inner())
        .model_layer(pass.named("passes"))
        .model_layer(list)
        .model_layer((ConcurrencyLimitLayer::new(1), TimeoutLayer::new(MINUTE)))
        .tool(tool)
        .build()
        .unwrap();
    assert_eq!(
        agent.explain().to_string(),
        "\
agent `agent`
  loop of at most 25 model calls
    model call
      [ConcurrencyLimitLayer]
        [RetryLayer]
          [passes]
            brief, polite
              [ConcurrencyLimitLayer]
                [TimeoutLayer]
                  Fallback
                    [Retry]
                      [Timeout]
                        [CallbackService]
                          ScriptedModel
                    ScriptedModel
                    ScriptedModel
    tool calls, 8 at a time
      [TimeoutLayer]
        [ConcurrencyLimitLayer]
          [timed]
            polite
              look
"
    );
}

#[test]
fn a_wrap_without_a_name_is_shown_by_its_place() {
    let pass = wrap_model(|request: ModelRequest, mut next| async move { next.run(request).await });
    let agent = Agent::builder(says("a")).model_layer(pass).build().unwrap();
    let told = agent.explain().to_string();
    assert!(told.contains("[wrap_model at tests/seams/first_hour.rs:"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_does_not_call_a_tool_again_says_why() {
    let busy = || Err::<(), _>(Error::new(ErrorKind::Overloaded, "busy"));
    let pay = Tool::function("pay", "Pays.", move |_: ()| busy()).layer(RetryLayer::new());
    let call = |tool: Tool| {
        let request = ToolRequest::new(ToolCall::new("call", "pay", json!({})))
            .with_declaration(Some(tool.declaration().clone()));
        tool.into_service().oneshot(request)
    };
    let error = call(pay.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let told = error.to_string();
    assert!(told.contains("tool call `pay`") && told.contains("1 attempt made"), "{told}");
    assert!(told.contains("not made again: its effect is `Mutating`"), "{told}");

    let error = call(pay.effect(Effect::Idempotent)).await.unwrap_err();
    assert_eq!(error.message(), "busy (3 attempts made)");
}
