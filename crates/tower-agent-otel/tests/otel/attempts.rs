//! Attempts are events of one span.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tower::ServiceBuilder;
use tower_agent::callback::on_model_error;
use tower_agent::model::ModelTarget;
use tower_agent::{
    Agent, AgentBuilder, Effect, Error, ErrorKind, ModelRequest, Recovery, Tool, Usage,
};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::{Look, of_event};
use crate::world::World;

fn busy() -> Turn {
    Turn::error(Error::new(
        ErrorKind::Overloaded,
        "busy, says jo@example.com",
    ))
}

fn flaky() -> ScriptedModel {
    ScriptedModel::new([
        busy(),
        busy(),
        Turn::from_text("hi").usage(Usage::new(7, 2)),
    ])
}

/// Runs an agent, and checks that its one model call has succeeded after two failures.
async fn one_span_with_two_failures(world: &World, agent: AgentBuilder, is_streamed: bool) {
    let agent = agent.global_callbacks(world.telemetry()).build().unwrap();
    if is_streamed {
        assert!(agent.stream("?").count().await > 0);
    } else {
        assert_eq!(agent.run("?").await.unwrap().text(), "hi");
    }
    let data = world.received();
    assert_eq!(data.spans.tree(), "invoke_agent agent(chat)");
    let chat = data.spans.one("chat");
    assert_eq!(chat.error(), None);
    assert_eq!(chat.get("gen_ai.usage.input_tokens").as_deref(), Some("7"));
    assert_eq!(
        chat.get("gen_ai.response.finish_reasons").as_deref(),
        Some("[stop]")
    );
    let events = chat.events_of("retrying call");
    let told = |key| {
        events
            .iter()
            .filter_map(|event| of_event(event, key))
            .collect::<Vec<_>>()
    };
    assert_eq!(told("made"), ["1", "2"]);
    assert_eq!(told("kind"), ["overloaded", "overloaded"]);
    assert!(!format!("{chat:?}").contains("jo@example.com"));
    assert_eq!(
        data.metrics
            .counts("gen_ai.client.inference.duration", "error.type")[""],
        1
    );
    assert_eq!(
        data.metrics
            .total("gen_ai.client.inference.usage.input_tokens"),
        7
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_inside_the_model_is_one_span() {
    for is_streamed in [false, true] {
        let world = World::new();
        let model = ServiceBuilder::new()
            .layer(CallRetryLayer::new())
            .service(flaky());
        one_span_with_two_failures(&world, Agent::builder(model), is_streamed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_the_model_is_one_span() {
    for is_streamed in [false, true] {
        let world = World::new();
        let agent = Agent::builder(flaky()).model_layer(CallRetryLayer::new());
        one_span_with_two_failures(&world, agent, is_streamed).await;
    }
}

#[tokio::test]
async fn a_retry_by_a_callback_is_one_span() {
    for is_streamed in [false, true] {
        let world = World::new();
        let agent = Agent::builder(flaky()).on_model(on_model_error(|_, _| Recovery::Retry));
        one_span_with_two_failures(&world, agent, is_streamed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_after_its_retries_says_so_once() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::always(busy()))
        .model_layer(CallRetryLayer::new().max_attempts(2))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let data = world.received();
    let chat = data.spans.one("chat");
    assert_eq!(chat.error().as_deref(), Some("overloaded"));
    assert_eq!(chat.events_of("retrying call").len(), 1);
    assert_eq!(chat.events_of("gen_ai.client.operation.exception").len(), 1);
    // The agent has failed of it, and does not tell it again.
    let agent = data.spans.one("invoke_agent agent");
    assert_eq!(
        (agent.error().as_deref(), agent.events.len()),
        (Some("overloaded"), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_tools_attempts_are_events_of_its_call() {
    let world = World::new();
    let mut failures = 2;
    let failures = std::sync::Mutex::new(move || {
        failures -= 1;
        failures >= 0
    });
    let flaky = Tool::function("flaky", "Works at the third attempt.", move |_: u32| {
        if (failures.lock().unwrap())() {
            Err(Error::new(ErrorKind::Connection, "gone"))
        } else {
            Ok("done")
        }
    });
    let turn = Turn::tool("flaky", json!({ "value": 1 }));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("hi")]))
        .tool(flaky.effect(Effect::Idempotent))
        .tool_layer(CallRetryLayer::new())
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let spans = world.spans();
    let call = spans.one("execute_tool flaky");
    assert_eq!(
        (call.error(), call.events_of("retrying call").len()),
        (None, 2)
    );
}

/// A model that tells its name.
fn named(
    model: ScriptedModel,
    provider: &'static str,
    name: &'static str,
) -> impl tower_agent::model::ModelService {
    let tells = tower::util::MapRequestLayer::new(move |request: ModelRequest| {
        if let Some(target) = request.extensions().get::<ModelTarget>() {
            target.set(provider, Some(name));
        }
        request
    });
    ServiceBuilder::new().layer(tells).service(model)
}

#[tokio::test]
async fn a_fallback_is_one_span_of_the_model_that_was_called_last() {
    let world = World::new();
    let large = named(ScriptedModel::new([busy()]), "anthropic", "large");
    let small = named(
        ScriptedModel::new([Turn::from_text("hi")]),
        "gemini",
        "small",
    );
    let agent = Agent::builder(Fallback::new(large).or(small))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
    let data = world.received();
    assert_eq!(data.spans.tree(), "invoke_agent agent(chat small)");
    let chat = data.spans.one("chat small");
    assert_eq!(chat.error(), None);
    assert_eq!(chat.get("gen_ai.request.model").as_deref(), Some("small"));
    assert_eq!(
        chat.get("gen_ai.provider.name").as_deref(),
        Some("gcp.gemini")
    );
    let events = chat.events_of("falling back to next model");
    assert_eq!(events.len(), 1);
    assert_eq!(of_event(events[0], "kind").as_deref(), Some("overloaded"));
}

#[tokio::test]
async fn all_protocols_of_a_provider_have_its_name() {
    for (protocol, provider) in [
        ("gemini", "gcp.gemini"),
        ("gemini_interactions", "gcp.gemini"),
        ("openai", "openai"),
        ("openai_responses", "openai"),
    ] {
        let world = World::new();
        let model = named(ScriptedModel::new([Turn::from_text("hi")]), protocol, "m");
        let agent = Agent::builder(model)
            .global_callbacks(world.telemetry())
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        let chat = world.received();
        let chat = chat.spans.one("chat m");
        assert_eq!(
            chat.get("gen_ai.provider.name").as_deref(),
            Some(provider),
            "{protocol}"
        );
    }
}

#[tokio::test]
async fn a_model_that_fails_has_told_its_name() {
    let world = World::new();
    let agent = Agent::builder(named(ScriptedModel::new([busy()]), "openai", "gpt-4o"))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let data = world.received();
    let chat = data.spans.one("chat gpt-4o");
    assert_eq!(chat.get("gen_ai.provider.name").as_deref(), Some("openai"));
    let [attributes] = &data.metrics.attributes("gen_ai.client.inference.duration")[..] else {
        panic!("several")
    };
    assert_eq!(attributes["gen_ai.request.model"], "gpt-4o");
    assert_eq!(attributes["error.type"], "overloaded");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_hangs_is_cancelled_by_a_timeout() {
    let world = World::new();
    let model = ScriptedModel::new([Turn::from_text("abcdef").hanging_after(1)]).chunk_size(2);
    let agent = Agent::builder(model)
        .model_layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(1)))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.stream("?").count().await;
    let spans = world.spans();
    assert_eq!(spans.one("chat").error().as_deref(), Some("timeout"));
    assert_eq!(
        spans.one("invoke_agent agent").error().as_deref(),
        Some("timeout")
    );
}

/// The first attempt is answered, and asked again with other settings.
#[tokio::test]
async fn a_span_describes_the_last_request_and_its_answer() {
    use tower_agent::callback::wrap_model;
    use tower_agent::message::Metadata;
    use tower_agent::model::{FinishReason, ReasoningEffort, ResponseFormat};
    use tower_agent::{Message, ModelResponse};

    let world = World::new();
    let again = wrap_model(async |mut request: ModelRequest, mut next| {
        request.settings_mut().temperature = Some(0.1);
        next.run(request.clone()).await?;
        request.settings_mut().temperature = Some(0.9);
        request.settings_mut().reasoning_effort = Some(ReasoningEffort::High);
        request.settings_mut().response_format = Some(ResponseFormat::Json);
        next.run(request).await
    });
    let cut = ModelResponse::new(Message::assistant("ha")).with_finish_reason(FinishReason::Length);
    let mut metadata = Metadata::default();
    metadata.model = Some("roadrunner-2".into());
    let whole = ModelResponse::from_text("half and half").with_metadata(metadata);
    let model = ScriptedModel::new([Turn::response(cut), Turn::response(whole)]);
    let agent = Agent::builder(model)
        .model_layer(again)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let data = world.received();
    let chat = data.spans.one("chat");
    for (key, value) in [
        ("gen_ai.request.temperature", "0.9"),
        ("gen_ai.request.reasoning.level", "high"),
        ("gen_ai.output.type", "json"),
        ("gen_ai.response.finish_reasons", "[stop]"),
        ("gen_ai.response.model", "roadrunner-2"),
    ] {
        let found: Vec<_> = chat
            .attributes
            .iter()
            .filter(|attribute| attribute.key == key)
            .collect();
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert_eq!(chat.get(key).as_deref(), Some(value), "{key}");
    }
    let [attributes] = &data.metrics.attributes("gen_ai.client.inference.duration")[..] else {
        panic!("several")
    };
    assert_eq!(attributes["gen_ai.response.model"], "roadrunner-2");
}

/// An answer, and then a failure: no answer has come to what was sent last.
#[tokio::test]
async fn the_finish_reason_is_that_of_the_last_attempt() {
    use tower_agent::callback::wrap_model;

    let world = World::new();
    let again = wrap_model(async |request: ModelRequest, mut next| {
        next.run(request.clone()).await?;
        next.run(request).await
    });
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi"), busy()]))
        .model_layer(again)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let spans = world.spans();
    let reasons = spans.one("chat").get("gen_ai.response.finish_reasons");
    assert_eq!(reasons.as_deref(), Some("[error]"));
}
