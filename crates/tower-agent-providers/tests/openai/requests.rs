//! Requests.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, ProviderData, ToolCall, ToolResult};
use tower_agent::model::{
    CacheRetention, PromptCache, ReasoningEffort, ResponseFormat, ToolChoice,
};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Effect, ErrorKind, Message, ModelRequest, Part, Role, Settings};

use crate::server::{Seen, Server, events, finished, says};
use test_support::{call, stream};

async fn sent(request: ModelRequest) -> Seen {
    let server = Server::start([says("ok")]).await;
    call(server.model(), request).await.unwrap();
    server.only()
}

async fn sent_messages(messages: impl IntoIterator<Item = Message>) -> Value {
    let messages = Vec::from_iter(messages);
    sent(ModelRequest::new(messages)).await.body["messages"].clone()
}

async fn sent_settings(settings: Settings) -> Value {
    sent(ModelRequest::new([Message::user("hi")]).with_settings(settings))
        .await
        .body
}

fn ours(value: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("openai", value);
    data.set("another", json!({ "not": "sent" }));
    data
}

fn tool() -> Arc<ToolDeclaration> {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    Arc::new(
        ToolDeclaration::new("weather", "Tells the weather.")
            .with_parameters(schema)
            .with_effect(Effect::Pure),
    )
}

#[tokio::test]
async fn a_plain_call() {
    let mut request = ModelRequest::new([Message::user("Hello, Wörld ✓")]);
    request.add_instructions("Be brief.");
    let seen = sent(request).await;
    assert_eq!(seen.line(), "POST /v1/chat/completions");
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(
        seen.header("user-agent")
            .unwrap()
            .starts_with("tower-agent/")
    );
    assert_eq!(seen.header("authorization"), None);
    let expected = json!({
        "model": "test-model",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Hello, Wörld ✓" },
        ],
    });
    assert_eq!(seen.body, expected);
}

#[tokio::test]
async fn a_streamed_call_asks_for_usage() {
    let server = Server::start([events(&[finished("stop")])]).await;
    let (answer, _) = stream(server.model(), ModelRequest::new([Message::user("hi")])).await;
    answer.unwrap();
    let body = server.only().body;
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"], json!({ "include_usage": true }));
}

#[tokio::test]
async fn every_role_and_a_tool_turn() {
    let call = ToolCall::new("call_1", "weather", json!({ "city": "Oslo" }));
    let messages = sent_messages([
        Message::system("In between."),
        Message::user("Weather?"),
        Message::new(Role::Assistant, [call.clone().into()]),
        Message::tool(ToolResult::new(
            &call,
            [Part::from_text("rain"), Part::from_text("4 °C")],
        )),
        Message::assistant("It rains."),
    ])
    .await;
    let function = json!({ "name": "weather", "arguments": "{\"city\":\"Oslo\"}" });
    let calls = json!([{ "id": "call_1", "type": "function", "function": function }]);
    let expected = json!([
        { "role": "system", "content": "In between." },
        { "role": "user", "content": "Weather?" },
        { "role": "assistant", "content": null, "tool_calls": calls },
        { "role": "tool", "tool_call_id": "call_1", "content": "rain\n4 °C" },
        { "role": "assistant", "content": "It rains." },
    ]);
    assert_eq!(messages, expected);
}

#[tokio::test]
async fn arguments_that_are_no_json_go_back_as_they_came() {
    let call = ToolCall::from_text("call_1", "weather", "{\"city\": \"Os");
    let messages = sent_messages([Message::assistant("Let me see.").with_part(call.into())]).await;
    assert_eq!(messages[0]["content"], "Let me see.");
    assert_eq!(
        messages[0]["tool_calls"][0]["function"]["arguments"],
        "{\"city\": \"Os"
    );
}

#[tokio::test]
async fn pictures() {
    let user = Message::user("What is this?")
        .with_part(Part::image(MediaSource::url("https://example.com/cat.png")))
        .with_part(Part::image(MediaSource::base64("image/png", "iVBORw0=")));
    let expected = json!([{ "role": "user", "content": [
        { "type": "text", "text": "What is this?" },
        { "type": "image_url", "image_url": { "url": "https://example.com/cat.png" } },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0=" } },
    ]}]);
    assert_eq!(sent_messages([user]).await, expected);
}

#[tokio::test]
async fn pictures_of_tools_follow_the_results_of_the_turn() {
    let one = ToolCall::new("call_1", "camera", json!({}));
    let two = ToolCall::new("call_2", "clock", json!({}));
    let picture = Part::image(MediaSource::url("https://example.com/cat.png"));
    let messages = sent_messages([
        Message::new(Role::Assistant, [one.clone().into(), two.clone().into()]),
        Message::tool(ToolResult::new(&one, [Part::from_text("a cat"), picture])),
        Message::tool(ToolResult::new(&two, [Part::from_text("noon")])),
        Message::user("And?"),
    ])
    .await;
    let roles: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["role"])
        .collect();
    assert_eq!(roles, ["assistant", "tool", "tool", "user", "user"]);
    assert_eq!(messages[1]["content"], "a cat");
    assert_eq!(
        messages[3]["content"],
        json!([
            { "type": "text", "text": "Shown by the tool `camera` (call call_1):" },
            { "type": "image_url", "image_url": { "url": "https://example.com/cat.png" } },
        ])
    );
    assert_eq!(messages[4]["content"], "And?");
}

#[tokio::test]
async fn audio_and_documents() {
    let report = MediaSource::base64("application/pdf", "JVBERi0=");
    let user = Message::user("Compare.")
        .with_part(Part::audio(MediaSource::base64("audio/wav", "UklGRg==")))
        .with_part(Part::audio(MediaSource::base64(
            "audio/MPEG; rate=44100",
            "SUQz",
        )))
        .with_part(Part::document(Media::new(report).with_name("report.pdf")))
        .with_part(Part::document(MediaSource::base64(
            "application/pdf",
            "JVBERi0=",
        )))
        .with_part(Part::document(MediaSource::file("file-1")));
    let pdf = "data:application/pdf;base64,JVBERi0=";
    let expected = json!([{ "role": "user", "content": [
        { "type": "text", "text": "Compare." },
        { "type": "input_audio", "input_audio": { "data": "UklGRg==", "format": "wav" } },
        { "type": "input_audio", "input_audio": { "data": "SUQz", "format": "mp3" } },
        { "type": "file", "file": { "file_data": pdf, "filename": "report.pdf" } },
        { "type": "file", "file": { "file_data": pdf, "filename": "document.pdf" } },
        { "type": "file", "file": { "file_id": "file-1" } },
    ]}]);
    assert_eq!(sent_messages([user]).await, expected);
}

#[tokio::test]
async fn media_that_the_protocol_cannot_carry_is_an_error_that_names_it() {
    let read = ToolCall::new("call_1", "read", json!({}));
    let parts = [
        (Part::image(MediaSource::file("file-1")), "image by file id"),
        (
            Part::audio(MediaSource::url("https://example.com/a.wav")),
            "audio by URL",
        ),
        (
            Part::audio(MediaSource::file("file-1")),
            "audio by URL or file id",
        ),
        (
            Part::audio(MediaSource::base64("audio/ogg", "T2dn")),
            "`audio/ogg`",
        ),
        (
            Part::document(MediaSource::url("https://example.com/a.pdf")),
            "document by URL",
        ),
    ];
    for (part, what) in parts {
        let result = ToolResult::new(&read, [Part::from_text("here"), part.clone()]);
        let places = [
            (
                Message::user("Look:").with_part(part),
                "messages[1].parts[1]: ",
            ),
            (Message::tool(result), "messages[1].parts[0].parts[1]: "),
        ];
        for (message, place) in places {
            let server = Server::start([says("ok")]).await;
            let request = ModelRequest::new([Message::user("hi"), message]);
            let error = call(server.model(), request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.message().starts_with(place), "{error}");
            assert!(error.message().contains(what), "{error}");
            assert!(server.seen().is_empty());
        }
    }
}

#[tokio::test]
async fn documents_of_tools_follow_the_results_of_the_turn() {
    let read = ToolCall::new("call_1", "read", json!({}));
    let messages = sent_messages([
        Message::new(Role::Assistant, [read.clone().into()]),
        Message::tool(ToolResult::new(
            &read,
            [Part::document(MediaSource::file("file-1"))],
        )),
    ])
    .await;
    assert_eq!(messages[1]["content"], "");
    assert_eq!(messages[2]["role"], "user");
    let file = json!({ "type": "file", "file": { "file_id": "file-1" } });
    assert_eq!(messages[2]["content"][1], file);
}

#[tokio::test]
async fn data_on_reasoning_is_added_to_its_message() {
    let mut thought = Part::reasoning("hm");
    if let Part::Reasoning(reasoning) = &mut thought {
        reasoning.provider = ours(json!({ "reasoning_content": "h", "mood": "calm" }));
    }
    let message = Message::new(Role::Assistant, [thought, Part::from_text("yes")]);
    let messages = sent_messages([message]).await;
    let expected = json!([
        { "role": "assistant", "content": "yes", "reasoning_content": "h", "mood": "calm" },
    ]);
    assert_eq!(messages, expected);
}

#[tokio::test]
async fn data_of_this_provider_goes_back() {
    let mut call = ToolCall::new("call_1", "weather", json!({}));
    call.provider = ours(json!({ "extra_content": { "google": { "thought_signature": "EqQ" } } }));
    let mut words = Part::from_text("long");
    if let Part::Text(text) = &mut words {
        text.provider = ours(json!({ "cache_control": { "type": "ephemeral" } }));
    }
    let mut user = Message::new(
        Role::User,
        [words, Part::Provider(ours(json!({ "type": "file" })))],
    );
    *user.provider_mut() = ours(json!({ "name": "ann" }));
    let mut other = ProviderData::default();
    other.set("another", json!({ "type": "thing" }));
    let messages = sent_messages([
        user,
        Message::new(Role::Assistant, [call.into(), Part::Provider(other)]),
    ])
    .await;
    let function = json!({ "name": "weather", "arguments": "{}" });
    let expected = json!([
        { "role": "user", "name": "ann", "content": [
            { "type": "text", "text": "long", "cache_control": { "type": "ephemeral" } },
            { "type": "file" },
        ]},
        { "role": "assistant", "content": null, "tool_calls": [{
            "id": "call_1", "type": "function", "function": function,
            "extra_content": { "google": { "thought_signature": "EqQ" } },
        }]},
    ]);
    assert_eq!(messages, expected);
}

#[tokio::test]
async fn tools() {
    let mut settings = Settings::default();
    settings.parallel_tool_calls = Some(false);
    settings.tool_choice = Some(ToolChoice::Tool("weather".into()));
    let request = ModelRequest::new([Message::user("hi")])
        .with_settings(settings)
        .with_tools(Arc::new(vec![tool()]));
    let body = sent(request).await.body;
    let expected = json!([{ "type": "function", "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    }}]);
    assert_eq!(body["tools"], expected);
    let choice = json!({ "type": "function", "function": { "name": "weather" } });
    assert_eq!(body["tool_choice"], choice);
    assert_eq!(body["parallel_tool_calls"], false);
    for (choice, word) in [
        (ToolChoice::Auto, "auto"),
        (ToolChoice::None, "none"),
        (ToolChoice::Required, "required"),
    ] {
        let mut settings = Settings::default();
        settings.tool_choice = Some(choice);
        let request = ModelRequest::default()
            .with_settings(settings)
            .with_tools(Arc::new(vec![tool()]));
        assert_eq!(sent(request).await.body["tool_choice"], word);
    }
}

#[tokio::test]
async fn settings_of_tools_are_not_sent_without_tools() {
    let mut settings = Settings::default();
    settings.parallel_tool_calls = Some(true);
    settings.tool_choice = Some(ToolChoice::Required);
    let body = sent_settings(settings).await;
    let fields: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["messages", "model"]);
}

#[tokio::test]
async fn every_setting() {
    let mut settings = Settings::default();
    settings.model = Some("another-model".into());
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.25);
    settings.max_tokens = Some(100);
    settings.stop = vec!["END".into(), "STOP".into()];
    settings.seed = Some(7);
    settings.reasoning_effort = Some(ReasoningEffort::Minimal);
    let cache = PromptCache::new()
        .with_key("support")
        .with_retention(CacheRetention::Long);
    settings.prompt_cache = Some(cache);
    settings
        .extra
        .insert("logit_bias".into(), json!({ "50256": -100 }));
    let expected = json!({
        "model": "another-model",
        "messages": [{ "role": "user", "content": "hi" }],
        "temperature": 0.5,
        "top_p": 0.25,
        "max_tokens": 100,
        "stop": ["END", "STOP"],
        "seed": 7,
        "reasoning_effort": "minimal",
        "prompt_cache_key": "support",
        "prompt_cache_retention": "24h",
        "logit_bias": { "50256": -100 },
    });
    assert_eq!(sent_settings(settings).await, expected);
}

#[tokio::test]
async fn every_effort() {
    for (effort, word) in [
        (ReasoningEffort::None, "none"),
        (ReasoningEffort::Low, "low"),
        (ReasoningEffort::Medium, "medium"),
        (ReasoningEffort::High, "high"),
        (ReasoningEffort::Other("xhigh".into()), "xhigh"),
    ] {
        let mut settings = Settings::default();
        settings.reasoning_effort = Some(effort);
        assert_eq!(sent_settings(settings).await["reasoning_effort"], word);
    }
}

#[tokio::test]
async fn extra_wins_and_null_takes_away() {
    let server = Server::start([events(&[finished("stop")])]).await;
    let mut settings = Settings::default();
    settings.temperature = Some(1.0);
    settings.extra.insert("temperature".into(), json!(0.1));
    settings
        .extra
        .insert("max_completion_tokens".into(), json!(9));
    settings.extra.insert("stream_options".into(), Value::Null);
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    stream(server.model(), request).await.0.unwrap();
    let body = server.only().body;
    assert_eq!(body["temperature"], 0.1);
    assert_eq!(body["max_completion_tokens"], 9);
    assert_eq!(body.get("stream_options"), None);
    assert_eq!(body["stream"], true);
}

#[tokio::test]
async fn response_formats() {
    let schema = json!({ "type": "object" });
    let strict = ResponseFormat::JsonSchema {
        name: "thing".into(),
        schema: schema.clone(),
        strict: true,
    };
    let named = json!({ "name": "thing", "schema": schema, "strict": true });
    for (format, expected) in [
        (ResponseFormat::Text, json!({ "type": "text" })),
        (ResponseFormat::Json, json!({ "type": "json_object" })),
        (
            strict,
            json!({ "type": "json_schema", "json_schema": named }),
        ),
    ] {
        let mut settings = Settings::default();
        settings.response_format = Some(format);
        assert_eq!(sent_settings(settings).await["response_format"], expected);
    }
}

#[tokio::test]
async fn a_request_without_a_model_is_an_error() {
    let server = Server::start([says("ok"), says("ok")]).await;
    let builder = || {
        tower_agent_providers::openai::OpenAi::builder()
            .base_url(&server.base_url)
            .api_key("")
    };
    let nameless = builder().build().unwrap();
    let error = call(nameless.clone(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("no model name"), "{error}");
    assert!(server.seen().is_empty());
    call(nameless.with_model("late"), ModelRequest::default())
        .await
        .unwrap();
    assert_eq!(server.only().body["model"], "late");
}

#[tokio::test]
async fn a_prompt_cache_sends_only_what_was_set() {
    let caches = [
        (PromptCache::new(), None, None),
        (
            PromptCache::new().with_retention(CacheRetention::Short),
            None,
            Some("in_memory"),
        ),
        (
            PromptCache::new().with_key("support"),
            Some("support"),
            None,
        ),
    ];
    for (cache, key, retention) in caches {
        let mut settings = Settings::default();
        settings.prompt_cache = Some(cache);
        let body = sent_settings(settings).await;
        assert_eq!(body.get("prompt_cache_key").and_then(Value::as_str), key);
        assert_eq!(
            body.get("prompt_cache_retention").and_then(Value::as_str),
            retention
        );
    }
}
