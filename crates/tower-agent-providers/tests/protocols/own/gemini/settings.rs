//! Settings, tools and the path.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::model::{PromptCache, ReasoningEffort, ResponseFormat, ServerTool, ToolChoice};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{ErrorKind, Message, ModelRequest, Settings};
use tower_agent_providers::gemini::GenerateContent;
use tower_agent_providers::protocol::Protocol;

use super::{events, finished, model, named, ours, says};
use crate::server::{Seen, Server};
use test_support::{call, stream};

fn request(settings: Settings) -> ModelRequest {
    ModelRequest::new([Message::user("hi")]).with_settings(settings)
}

async fn sent_as(name: &str, request: ModelRequest) -> Seen {
    let server = Server::start([says("ok")]).await;
    call(named(&server, name), request).await.unwrap();
    server.only()
}

async fn sent(settings: Settings) -> Value {
    sent_as("gemini-3-flash-preview", request(settings))
        .await
        .body
}

async fn refused(name: &str, request: ModelRequest) -> String {
    let server = Server::start([]).await;
    let error = call(named(&server, name), request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(server.seen().is_empty(), "nothing is sent");
    error.message().to_owned()
}

fn tool() -> ToolDeclaration {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    ToolDeclaration::new("weather", "Tells the weather.").with_parameters(schema)
}

fn with_tool(settings: Settings) -> ModelRequest {
    request(settings).with_tools(Arc::new(vec![Arc::new(tool())]))
}

fn function() -> Value {
    let tool = tool();
    json!({
        "name": tool.name(),
        "description": tool.description(),
        "parametersJsonSchema": tool.parameters(),
    })
}

fn extra(value: Value) -> Settings {
    let mut settings = Settings::default();
    settings.extra = value.as_object().unwrap().clone();
    settings
}

#[tokio::test]
async fn every_setting() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.9);
    settings.max_tokens = Some(100);
    settings.stop = vec!["END".into()];
    settings.seed = Some(7);
    settings.parallel_tool_calls = Some(true);
    settings.prompt_cache = Some(PromptCache::new().with_key("k"));
    settings.reasoning_effort = Some(ReasoningEffort::Low);
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "A".into(),
        schema: schema.clone(),
        strict: true,
    });
    let expected = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }],
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 100,
            "stopSequences": ["END"],
            "seed": 7,
            "responseMimeType": "application/json",
            "responseJsonSchema": schema,
            "thinkingConfig": { "thinkingLevel": "low", "includeThoughts": true },
        },
    });
    assert_eq!(sent(settings).await, expected);
}

#[tokio::test]
async fn response_formats_without_a_schema() {
    for (format, media_type) in [
        (ResponseFormat::Text, "text/plain"),
        (ResponseFormat::Json, "application/json"),
    ] {
        let mut settings = Settings::default();
        settings.response_format = Some(format);
        let config = &sent(settings).await["generationConfig"];
        assert_eq!(config, &json!({ "responseMimeType": media_type }));
    }
}

#[tokio::test]
async fn reasoning_by_generation_of_the_model() {
    let level = |word: &str| json!({ "thinkingLevel": word, "includeThoughts": true });
    let budget = |tokens: i32| json!({ "thinkingBudget": tokens, "includeThoughts": true });
    let other = |word: &'static str| ReasoningEffort::Other(word.into());
    let none = json!({ "thinkingBudget": 0, "includeThoughts": false });
    for (name, effort, expected) in [
        (
            "gemini-3-pro-preview",
            ReasoningEffort::Minimal,
            level("minimal"),
        ),
        ("gemini-3.1-pro", ReasoningEffort::Medium, level("medium")),
        ("gemini-pro-latest", ReasoningEffort::High, level("high")),
        ("gemini-4-argon", other("deep"), level("deep")),
        ("gemini-3-flash", other("-1"), budget(-1)),
        ("gemini-2.5-flash", ReasoningEffort::None, none),
        ("gemini-2.5-flash", ReasoningEffort::Minimal, budget(1024)),
        ("gemini-2.5-pro", ReasoningEffort::Low, budget(1024)),
        (
            "models/gemini-2.5-pro",
            ReasoningEffort::Medium,
            budget(8192),
        ),
        ("gemini-2.5-pro", ReasoningEffort::High, budget(24_576)),
        ("gemini-2.5-pro", other("300"), budget(300)),
    ] {
        let mut settings = Settings::default();
        settings.reasoning_effort = Some(effort.clone());
        let body = sent_as(name, request(settings)).await.body;
        let config = &body["generationConfig"]["thinkingConfig"];
        assert_eq!(config, &expected, "{name} {effort:?}");
    }
}

#[tokio::test]
async fn settings_that_the_protocol_lacks_are_errors() {
    let mut settings = Settings::default();
    settings.reasoning_effort = Some(ReasoningEffort::None);
    let message = refused("gemini-3-flash-preview", request(settings)).await;
    assert!(message.contains("use `Minimal`"), "{message}");

    let mut settings = Settings::default();
    settings.parallel_tool_calls = Some(false);
    let message = refused("gemini-2.5-flash", with_tool(settings)).await;
    assert!(message.contains("parallel_tool_calls"), "{message}");

    let mut settings = Settings::default();
    settings.seed = Some(u64::MAX);
    let message = refused("gemini-2.5-flash", request(settings)).await;
    assert!(message.contains("seed"), "{message}");
}

#[tokio::test]
async fn tools_and_which_of_them() {
    for (choice, config) in [
        (None, Value::Null),
        (Some(ToolChoice::Auto), json!({ "mode": "AUTO" })),
        (Some(ToolChoice::None), json!({ "mode": "NONE" })),
        (Some(ToolChoice::Required), json!({ "mode": "ANY" })),
        (
            Some(ToolChoice::Tool("weather".into())),
            json!({ "mode": "ANY", "allowedFunctionNames": ["weather"] }),
        ),
    ] {
        let mut settings = Settings::default();
        settings.tool_choice = choice;
        let body = sent_as("gemini-2.5-flash", with_tool(settings)).await.body;
        assert_eq!(
            body["tools"],
            json!([{ "functionDeclarations": [function()] }])
        );
        assert_eq!(body["toolConfig"]["functionCallingConfig"], config);
    }
}

#[tokio::test]
async fn provider_data_of_a_tool_adds_fields() {
    let mut tool = tool();
    let data = json!({ "behavior": "NON_BLOCKING", "parametersJsonSchema": null });
    *tool.provider_mut() = ours(data);
    let request = request(Settings::default()).with_tools(Arc::new(vec![Arc::new(tool)]));
    let body = sent_as("gemini-2.5-flash", request).await.body;
    let mut expected = function();
    expected["behavior"] = "NON_BLOCKING".into();
    expected
        .as_object_mut()
        .unwrap()
        .remove("parametersJsonSchema");
    assert_eq!(body["tools"][0]["functionDeclarations"], json!([expected]));
}

#[tokio::test]
async fn extra_fields_are_merged() {
    let mut settings = extra(json!({
        "cachedContent": "cachedContents/abc",
        "safetySettings": [{ "category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF" }],
        "generationConfig": { "topK": 40, "temperature": 0.1, "topP": null },
        "toolConfig": { "includeServerSideToolInvocations": true },
        "tools": [{ "googleSearch": {} }],
        "systemInstruction": null,
    }));
    settings.temperature = Some(1.0);
    settings.top_p = Some(0.9);
    settings.max_tokens = Some(5);
    settings.tool_choice = Some(ToolChoice::Auto);
    let mut request = with_tool(settings);
    request.add_instructions("Be brief.");
    let body = sent_as("gemini-2.5-flash", request).await.body;
    let expected = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }],
        "tools": [{ "functionDeclarations": [function()] }, { "googleSearch": {} }],
        "toolConfig": {
            "functionCallingConfig": { "mode": "AUTO" },
            "includeServerSideToolInvocations": true,
        },
        "generationConfig": { "maxOutputTokens": 5, "topK": 40, "temperature": 0.1 },
        "cachedContent": "cachedContents/abc",
        "safetySettings": [{ "category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF" }],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn extra_tools_alone() {
    let body = sent(extra(json!({ "tools": [{ "googleSearch": {} }] }))).await;
    assert_eq!(body["tools"], json!([{ "googleSearch": {} }]));
    assert_eq!(body.get("toolConfig"), None);
}

#[tokio::test]
async fn a_model_is_part_of_the_path() {
    for (name, path) in [
        ("gemini-2.5-flash", "/v1/models/gemini-2.5-flash"),
        ("models/gemini-2.5-flash", "/v1/models/gemini-2.5-flash"),
        ("tunedModels/mine-1", "/v1/tunedModels/mine-1"),
        ("a b?c#d%é:x", "/v1/models/a%20b%3Fc%23d%25%C3%A9%3Ax"),
    ] {
        let seen = sent_as(name, request(Settings::default())).await;
        assert_eq!(seen.line(), format!("POST {path}:generateContent"));
    }
    for name in ["", "..", "models/../x", "models/", "a//b"] {
        let message = refused(name, request(Settings::default())).await;
        assert!(message.contains("cannot be part of a URL"), "{message}");
    }
}

#[tokio::test]
async fn every_call_of_one_client_goes_to_its_own_path() {
    let names = ["one", "two", "one"];
    let server = Server::start(names.map(|_| says("ok"))).await;
    let client = model(&server);
    for name in names {
        let mut request = request(Settings::default());
        request.settings_mut().model = Some(name.to_owned());
        call(client.clone(), request).await.unwrap();
    }
    let lines: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.line().to_owned())
        .collect();
    assert_eq!(
        lines,
        names.map(|name| format!("POST /v1/models/{name}:generateContent"))
    );
}

#[tokio::test]
async fn a_model_in_the_extra_fields_is_called_and_not_sent() {
    let settings = extra(json!({ "model": "gemini-2.5-pro" }));
    let seen = sent_as("gemini-3-flash", request(settings)).await;
    assert_eq!(
        seen.line(),
        "POST /v1/models/gemini-2.5-pro:generateContent"
    );
    assert_eq!(seen.body.get("model"), None);
}

#[tokio::test]
async fn a_streamed_call_has_a_path_of_its_own() {
    let server = Server::start([events(&[finished(json!([{ "text": "ok" }]), "STOP")])]).await;
    let (response, _) = stream(model(&server), request(Settings::default())).await;
    response.unwrap();
    let line = "POST /v1/models/gemini-3-flash-preview:streamGenerateContent?alt=sse";
    assert_eq!(server.only().line(), line);
}

#[test]
fn a_base_url_may_leave_out_the_version() {
    let own = "https://generativelanguage.googleapis.com";
    let vertex = "https://aiplatform.googleapis.com/v1/publishers/google";
    for (given, expected) in [
        (own, &*format!("{own}/v1beta")),
        (&*format!("{own}/v1"), &*format!("{own}/v1")),
        (vertex, vertex),
    ] {
        assert_eq!(GenerateContent::default().base_url(given), expected);
    }
}

/// googleapis/python-genai#867: "Function calling with a response mime type: 'application/json' is
/// unsupported".
#[tokio::test]
async fn a_schema_beside_tools_of_the_server_stands_in_the_instructions_of_older_models() {
    let schema = json!({ "type": "object" });
    let request = || {
        let mut settings = Settings::default();
        settings.response_format = Some(ResponseFormat::JsonSchema {
            name: "x".into(),
            schema: schema.clone(),
            strict: true,
        });
        let mut request = request(settings);
        request.add_instructions("Be brief.");
        request
    };
    let tool = || Arc::new(ToolDeclaration::new("look", "Looks."));
    let with_tools = || request().with_tools(Arc::new(vec![tool()]));
    let mut searches = request();
    searches.settings_mut().server_tools = vec![ServerTool::web_search()];
    let body = sent_as("gemini-2.5-flash", searches).await.body;
    assert_eq!(body.get("generationConfig"), None, "{body}");
    let parts = body["systemInstruction"]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2);
    let text = parts[1]["text"].as_str().unwrap();
    assert!(text.ends_with(&schema.to_string()), "{text}");
    for (model, request) in [
        ("gemini-2.5-flash", request()),
        ("gemini-3-flash-preview", with_tools()),
    ] {
        let body = sent_as(model, request).await.body;
        assert_eq!(body["generationConfig"]["responseJsonSchema"], schema);
        assert_eq!(
            body["systemInstruction"]["parts"].as_array().unwrap().len(),
            1
        );
    }
}

#[tokio::test]
async fn a_wrong_answer_says_why_the_schema_stood_in_the_instructions() {
    let server = Server::start([says("no"), says("no"), says("no")]).await;
    let mut settings = Settings::default();
    settings.server_tools = vec![ServerTool::web_search()];
    let agent = tower_agent::Agent::builder(named(&server, "gemini-2.5-flash"))
        .settings(settings)
        .build()
        .unwrap();
    let error = agent.run_typed::<Vec<u8>>("Count!").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
    let reason = "the schema stood in the instructions, since models before Gemini 3 take no schema \
                  beside tools";
    assert!(error.message().ends_with(reason), "{error}");
}
