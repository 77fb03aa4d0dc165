//! Our requests are read by the types that others wrote for them, and nothing in them is unknown.

use std::sync::Arc;

use async_openai::types::chat::CreateChatCompletionRequest;
use async_openai::types::responses::CreateResponse;
use claude_api::messages::{
    MessageInput, MessageMetadata, OutputConfig, SystemPrompt, ThinkingConfig, Tool, ToolChoice,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tower_agent::message::{MediaSource, Reasoning, ToolCall, ToolResult};
use tower_agent::model::{
    CacheRetention, PromptCache, ReasoningEffort, ResponseFormat, ToolChoice as Choice,
};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Message, ModelRequest, Part, Role, Settings};
use tower_agent_providers::Protocol;
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::protocol::Call;

use crate::answer::{Answer, call, reasoning, text};
use crate::column::{Column, model};
use crate::columns::{anthropic, responses};
use crate::server::{Server, json as reply};

const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
        "additionalProperties": false,
    })
}

fn tools() -> Arc<Vec<Arc<ToolDeclaration>>> {
    let weather = ToolDeclaration::new("weather", "Tells the weather.").with_parameters(schema());
    let time = ToolDeclaration::new("time", "Tells the time.");
    Arc::new(vec![Arc::new(weather), Arc::new(time)])
}

/// A conversation with all that the three protocols can carry.
fn conversation(answer: Message) -> Vec<Message> {
    let asked = Message::user("Where is this?")
        .with_part(Part::image(MediaSource::base64("image/png", PIXEL)))
        .with_part(Part::image(MediaSource::url("https://example.com/a.png")))
        .with_part(Part::document(MediaSource::base64(
            "application/pdf",
            "JVBERi0xLjQK",
        )));
    let calls: Vec<_> = answer.tool_calls().cloned().collect();
    let foreign = ToolCall::new("functions.weather:0", "weather", json!({ "city": "Oslo" }));
    let mut messages = vec![Message::system("Be kind."), asked, answer];
    for call in &calls {
        let parts = [
            Part::from_text("rain"),
            Part::image(MediaSource::base64("image/png", PIXEL)),
        ];
        messages.push(Message::tool(ToolResult::new(call, parts)));
    }
    messages.push(Message::assistant("It rains."));
    messages.push(Message::user("And there?"));
    let thought = Part::Reasoning(Reasoning::default());
    messages.push(Message::new(
        Role::Assistant,
        [thought, foreign.clone().into()],
    ));
    let failed = ToolResult::new(&foreign, [Part::from_text("no such city")]).failed();
    messages.push(Message::tool(failed));
    messages.push(Message::user("Thanks."));
    messages
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.max_tokens = Some(2048);
    settings.parallel_tool_calls = Some(false);
    settings.reasoning_effort = Some(ReasoningEffort::Low);
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "a".into(),
        schema: schema(),
        strict: true,
    });
    settings
}

fn body<P: Protocol>(protocol: &P, messages: Vec<Message>, settings: Settings) -> Value {
    let mut request = ModelRequest::new(messages)
        .with_tools(tools())
        .with_settings(settings);
    request.add_instructions("Be brief.");
    let mut body = Vec::new();
    let call = Call::new(&request).with_model("m");
    protocol.encode(&call, &mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// An answer as a decoder of the protocol reads it, with all that must go back.
async fn answer<C: Column>() -> Message {
    let answer = Answer::new([
        reasoning(&["Hm."], "c2lnbmVk"),
        text(&["I look."]),
        call("call_1", "weather", &["{\"city\":\"Tromsø\"}"]),
        call("call_2", "time", &["{}"]),
    ]);
    let server = Server::start([reply(200, &C::body(&answer))]).await;
    let request = ModelRequest::new([Message::user("Hi.")]);
    let response = test_support::call(model::<C>(&server), request)
        .await
        .unwrap();
    response.message().clone()
}

/// Reads a value as a type of others, and asserts that they would send all of it.
#[track_caller]
fn assert_known<T: DeserializeOwned + Serialize>(place: &str, ours: &Value) {
    let theirs: T = serde_json::from_value(ours.clone())
        .unwrap_or_else(|error| panic!("{place}: {error}\n{ours:#}"));
    assert_within(place, ours, &serde_json::to_value(theirs).unwrap());
}

#[track_caller]
fn assert_within(place: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in ours {
                let place = format!("{place}.{name}");
                match theirs.get(name) {
                    Some(theirs) => assert_within(&place, value, theirs),
                    // An optional field, which they leave out.
                    None if value.is_null() => {}
                    None => panic!("{place} is unknown: {value}"),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{place}");
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                assert_within(&format!("{place}[{index}]"), ours, theirs);
            }
        }
        (ours, theirs) => assert_eq!(ours, theirs, "{place}"),
    }
}

#[tokio::test]
async fn chat_completions() {
    let calls = [
        ToolCall::new("call_1", "weather", json!({ "city": "Tromsø" })),
        ToolCall::new("call_2", "time", json!({})),
    ];
    let answer = Message::new(Role::Assistant, calls.map(Part::ToolCall));
    let mut messages = conversation(answer);
    messages.push(
        Message::user("Hear.").with_part(Part::audio(MediaSource::base64("audio/wav", "UklGRg=="))),
    );
    let mut settings = settings();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.25);
    settings.stop = vec!["END".into()];
    settings.seed = Some(7);
    settings.tool_choice = Some(Choice::Tool("weather".into()));
    // Their type has no retention.
    settings.prompt_cache = Some(PromptCache::new().with_key("k"));
    let body = body(&Chat::default(), messages, settings);
    assert_known::<CreateChatCompletionRequest>("body", &body);
}

#[tokio::test]
async fn responses() {
    let mut settings = settings();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.25);
    settings.tool_choice = Some(Choice::Tool("weather".into()));
    let cache = PromptCache::new()
        .with_key("k")
        .with_retention(CacheRetention::Long);
    settings.prompt_cache = Some(cache);
    let answer = answer::<responses::ResponsesColumn>().await;
    let body = body(&Responses::default(), conversation(answer), settings);
    assert_known::<CreateResponse>("body", &body);
}

#[tokio::test]
async fn anthropic_messages() {
    let mut settings = settings();
    settings.stop = vec!["END".into()];
    settings.tool_choice = Some(Choice::Auto);
    settings
        .extra
        .insert("metadata".into(), json!({ "user_id": "u" }));
    let answer = answer::<anthropic::AnthropicColumn>().await;
    let body = body(&Messages::default(), conversation(answer), settings);
    let fields: &Map<String, Value> = body.as_object().unwrap();
    for (name, value) in fields {
        match &**name {
            "messages" => assert_known::<Vec<MessageInput>>(name, value),
            "system" => assert_known::<SystemPrompt>(name, value),
            "tools" => assert_known::<Vec<Tool>>(name, value),
            "tool_choice" => assert_known::<ToolChoice>(name, value),
            "thinking" => assert_known::<ThinkingConfig>(name, value),
            "metadata" => assert_known::<MessageMetadata>(name, value),
            "output_config" => assert_known::<OutputConfig>(name, value),
            "model" => assert!(value.is_string()),
            "max_tokens" => assert!(value.is_u64()),
            "stop_sequences" => assert_known::<Vec<String>>(name, value),
            other => panic!("{other} is unknown: {value}"),
        }
    }
}
