//! Runs that have everything that is recorded. That it is as the conventions say is checked for
//! every test, where the data is received.

use std::collections::BTreeSet;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_agent::message::Metadata;
use tower_agent::model::{ModelTarget, ReasoningEffort, ResponseFormat};
use tower_agent::{
    Agent, AgentRequest, Message, ModelRequest, ModelResponse, Settings, Tool, Usage,
};
use tower_agent_conversations::{ConversationKey, MemoryConversations, SessionLayer};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::Look;
use crate::registry;
use crate::world::World;

/// A model that tells its name and its server.
pub(crate) fn at(
    model: ScriptedModel,
    name: &'static str,
    server: &'static str,
) -> impl tower_agent::model::ModelService {
    let tells = tower::util::MapRequestLayer::new(move |request: ModelRequest| {
        if let Some(target) = request.extensions().get::<ModelTarget>() {
            target.set("openai", Some(name));
            target.set_server(server, 443);
        }
        request
    });
    ServiceBuilder::new().layer(tells).service(model)
}

fn all_settings() -> Settings {
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.9);
    settings.max_tokens = Some(100);
    settings.stop = vec!["END".into()];
    settings.seed = Some(7);
    settings.reasoning_effort = Some(ReasoningEffort::Low);
    settings.response_format = Some(ResponseFormat::Text);
    settings
}

fn answer() -> ModelResponse {
    let mut usage = Usage::new(10, 5);
    usage.cached_input_tokens = 3;
    usage.cache_write_tokens = 2;
    usage.reasoning_tokens = 1;
    let mut metadata = Metadata::default();
    metadata.model = Some("gpt-5-2026-01-01".into());
    metadata.response_id = Some("r1".into());
    ModelResponse::new(Message::assistant("Done."))
        .with_usage(usage)
        .with_metadata(metadata)
}

#[tokio::test]
async fn everything_that_can_be_recorded_is_as_the_conventions_say() {
    let world = World::new();
    let model = ScriptedModel::new([
        Turn::tool("look", json!({ "at": 1 })).and_tool("fails", json!({})),
        Turn::response(answer()),
    ]);
    let look = Tool::function("look", "Looks.", |_: Value| json!({ "rain": true }));
    let fails = Tool::function("fails", "Fails.", |_: Value| -> Result<(), String> {
        Err("no".into())
    });
    let clerk = Agent::builder(at(model, "gpt-5", "models.test"))
        .name("clerk")
        .description("Looks things up.")
        .instructions("Be exact.")
        .settings(all_settings())
        .tools([look, fails])
        .build()
        .unwrap();
    let telemetry = world.telemetry();
    let telemetry = telemetry.record_content().user_id(|_| Some("ada".into()));
    let team = Agent::sequential("team")
        .agent(clerk)
        .global_callbacks(telemetry)
        .build()
        .unwrap();
    assert!(team.stream("Rain?").count().await > 0);

    let data = world.received();
    let spans = &data.spans.0;
    let mut seen: BTreeSet<_> = spans
        .iter()
        .flat_map(|span| registry::names(&span.attributes))
        .collect();
    // Of metrics alone.
    seen.insert("gen_ai.token.modality");
    assert_eq!(seen, registry::all_names());
    let metrics: BTreeSet<_> = data.metrics.names().into_iter().collect();
    assert_eq!(metrics, registry::all_metrics());
    let metric = "gen_ai.client.inference.time_per_output_chunk";
    for attributes in data.metrics.attributes(metric) {
        assert_eq!(attributes["server.address"], "models.test");
        assert_eq!(attributes["server.port"], "443");
    }
}

#[tokio::test]
async fn a_call_that_reaches_another_model_than_the_one_before_has_one_of_each() {
    let world = World::new();
    let busy = tower_agent::Error::new(tower_agent::ErrorKind::Overloaded, "busy");
    let first = ScriptedModel::new([Turn::error(busy), Turn::response(answer())]);
    let second = ScriptedModel::new([Turn::from_text("hi")]);
    let agent = Agent::builder(Fallback::new(at(first, "gpt-5", "one.test")).or(at(
        second,
        "gpt-5-fallback",
        "two.test",
    )))
    .global_callbacks(world.telemetry())
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    agent.run("?").await.unwrap();
    let data = world.received();
    let fallback = data.spans.one("chat gpt-5-fallback");
    assert_eq!(fallback.get("server.address").as_deref(), Some("two.test"));
    assert_eq!(fallback.get("gen_ai.response.model"), None);
    let chat = data.spans.one("chat gpt-5");
    assert_eq!(chat.get("server.address").as_deref(), Some("one.test"));
    let answered = chat.get("gen_ai.response.model");
    assert_eq!(answered.as_deref(), Some("gpt-5-2026-01-01"));
    let servers = data
        .metrics
        .counts("gen_ai.client.inference.duration", "server.address");
    let expected = [("one.test".to_owned(), 1), ("two.test".to_owned(), 1)];
    assert_eq!(servers, expected.into());
}

#[tokio::test]
async fn every_span_of_a_session_has_its_run_its_conversation_and_if_allowed_its_user() {
    for is_allowed in [false, true] {
        let world = World::new();
        let mut telemetry = world.telemetry();
        if is_allowed {
            telemetry =
                telemetry.user_id(|run| ConversationKey::of(run).map(|key| key.user.to_string()));
        }
        let worker = Agent::builder(ScriptedModel::always(Turn::from_text("Oslo")));
        let worker = worker.name("worker").build().unwrap();
        let model = ScriptedModel::new([
            Turn::tool("worker", json!({ "request": "Where?" })),
            Turn::from_text("Oslo."),
            Turn::from_text("Still Oslo."),
        ]);
        let agent = Agent::builder(model)
            .tool(worker.into_tool("Works."))
            .global_callbacks(telemetry)
            .build()
            .unwrap();
        let agent = SessionLayer::new(MemoryConversations::new()).layer(agent);
        let key = ConversationKey::new("shop", "ada", "chat 7");
        for run in ["run 1", "run 2"] {
            let request = AgentRequest::new("Where?").with_run_id(run);
            agent.clone().oneshot(key.request(request)).await.unwrap();
            let spans = world.spans();
            assert_eq!(spans.0.len(), if run == "run 1" { 6 } else { 2 });
            for span in &spans.0 {
                let of = |key| span.get(key);
                assert_eq!(of("tower_agent.run.id").as_deref(), Some(run));
                assert_eq!(of("gen_ai.conversation.id").as_deref(), Some("chat 7"));
                assert_eq!(of("enduser.id").as_deref(), is_allowed.then_some("ada"));
            }
        }
    }
}
