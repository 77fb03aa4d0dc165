//! Requests.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::message::{
    Media, MediaSource, ProviderData, Reasoning, Text, ToolCall, ToolResult,
};
use tower_agent::model::{PromptCache, ReasoningEffort, ResponseFormat, ToolChoice};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{ErrorKind, Message, ModelRequest, Part, Role, Settings};

use super::{answers, model, named, ours, says};
use crate::server::{Seen, Server};
use test_support::{call, stream};

async fn sent_as(name: &str, request: ModelRequest) -> Seen {
    let server = Server::start([answers(json!([says("ok")]))]).await;
    call(named(&server, name), request).await.unwrap();
    server.only()
}

async fn input_as(name: &str, messages: impl IntoIterator<Item = Message>) -> Value {
    sent_as(name, ModelRequest::new(Vec::from_iter(messages)))
        .await
        .body["input"]
        .clone()
}

async fn input(messages: impl IntoIterator<Item = Message>) -> Value {
    input_as("gemini-3.6-flash", messages).await
}

async fn sent(settings: Settings) -> Value {
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    sent_as("gemini-3.6-flash", request).await.body
}

async fn refused(request: ModelRequest) -> String {
    let server = Server::start([]).await;
    let error = call(model(&server), request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(server.seen().is_empty(), "nothing is sent");
    error.message().to_owned()
}

fn with_tool(settings: Settings) -> ModelRequest {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tool = ToolDeclaration::new("weather", "Tells the weather.").with_parameters(schema);
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    request.with_tools(Arc::new(vec![Arc::new(tool)]))
}

fn extra(value: Value) -> Settings {
    let mut settings = Settings::default();
    settings.extra = value.as_object().unwrap().clone();
    settings
}

fn asked(text: &str) -> Value {
    json!({ "type": "user_input", "content": [{ "type": "text", "text": text }] })
}

fn thought(signature: &str) -> Value {
    json!({ "type": "thought", "signature": signature })
}

fn signed(text: &str, signature: &str) -> Part {
    let mut reasoning = Reasoning::default();
    reasoning.text = text.into();
    reasoning.provider = ours(json!({ "signature": signature }));
    Part::Reasoning(reasoning)
}

fn tool_call(id: &str) -> ToolCall {
    ToolCall::new(id, "weather", json!({ "city": id }))
}

fn function_call(id: &str) -> Value {
    json!({ "type": "function_call", "id": id, "name": "weather", "arguments": { "city": id } })
}

fn answered(id: &str, text: &str) -> Message {
    Message::tool(ToolResult::new(&tool_call(id), [Part::from_text(text)]))
}

fn function_result(id: &str, result: impl Into<Value>) -> Value {
    json!({ "type": "function_result", "call_id": id, "name": "weather", "result": result.into() })
}

#[tokio::test]
async fn a_plain_call_keeps_nothing_on_the_server() {
    let mut request = ModelRequest::new([Message::system("Be kind."), Message::user("Hello ✓")]);
    request.add_instructions("Be brief.");
    let seen = sent_as("gemini-3.6-flash", request).await;
    assert_eq!(seen.line(), "POST /v1/interactions");
    assert_eq!(seen.header("api-revision"), Some("2026-05-20"));
    let expected = json!({
        "input": [asked("Hello ✓")],
        "model": "gemini-3.6-flash",
        "store": false,
        "system_instruction": "Be brief.\n\nBe kind.",
        "stream": false,
    });
    assert_eq!(seen.body, expected);
}

#[tokio::test]
async fn a_streamed_call_says_so_in_its_body() {
    let server = Server::start([answers(json!([says("ok")]))]).await;
    stream(model(&server), ModelRequest::new([Message::user("hi")]))
        .await
        .0
        .unwrap();
    let seen = server.only();
    assert_eq!(
        (seen.line(), &seen.body["stream"]),
        ("POST /v1/interactions", &json!(true))
    );
}

#[tokio::test]
async fn media_are_contents_and_results_have_theirs() {
    let mut image =
        Media::new(MediaSource::url("https://example.com/a").with_media_type("image/png"));
    image.provider = ours(json!({ "resolution": "high" }));
    let file = Media::new(MediaSource::file(
        "https://generativelanguage.example/files/1",
    ));
    let question = Message::user("Look.")
        .with_part(Part::image(image))
        .with_part(Part::audio(MediaSource::base64("audio/wav", "UklGRg==")))
        .with_part(Part::document(MediaSource::base64(
            "application/pdf",
            "JVBERi0=",
        )))
        .with_part(Part::document(file))
        .with_part(Part::Provider(ours(
            json!({ "type": "video", "uri": "https://youtu.be/1" }),
        )));
    let parts = [
        Part::from_text("rain"),
        Part::image(MediaSource::base64("image/png", "iVBORw0=")),
    ];
    let result = ToolResult::new(&tool_call("a"), parts);
    let failed = ToolResult::new(
        &tool_call("b"),
        [Part::from_text("no"), Part::from_text("such")],
    );
    let calls = [tool_call("a"), tool_call("b")].map(Part::ToolCall);
    let messages = [
        question,
        Message::new(Role::Assistant, [signed("", "s")].into_iter().chain(calls)),
        Message::tool(result),
        Message::tool(failed.failed()),
    ];
    let mut failed = function_result("b", "no\nsuch");
    failed["is_error"] = true.into();
    let expected = json!([
        { "type": "user_input", "content": [
            { "type": "text", "text": "Look." },
            { "type": "image", "mime_type": "image/png", "uri": "https://example.com/a", "resolution": "high" },
            { "type": "audio", "mime_type": "audio/wav", "data": "UklGRg==" },
            { "type": "document", "mime_type": "application/pdf", "data": "JVBERi0=" },
            { "type": "document", "uri": "https://generativelanguage.example/files/1" },
            { "type": "video", "uri": "https://youtu.be/1" },
        ] },
        thought("s"),
        function_call("a"),
        function_call("b"),
        function_result("a", json!([
            { "type": "text", "text": "rain" },
            { "type": "image", "mime_type": "image/png", "data": "iVBORw0=" },
        ])),
        failed,
    ]);
    assert_eq!(input(messages).await, expected);
}

/// Newer models refuse a call without reasoning before it.
#[tokio::test]
async fn calls_of_another_model_have_a_stand_in_for_reasoning() {
    let mut unsigned = Reasoning::default();
    unsigned.text = "Hm.".into();
    let said = [
        Part::Reasoning(unsigned),
        Part::from_text("I look."),
        Part::ToolCall(tool_call("a")),
        Part::ToolCall(tool_call("b")),
    ];
    let messages = || {
        [
            Message::user("Go on."),
            Message::new(Role::Assistant, said.clone()),
            answered("a", "rain"),
            answered("b", "sun"),
        ]
    };
    let with = |stand_in: Option<Value>| {
        let steps = [asked("Go on."), says("I look.")]
            .into_iter()
            .chain(stand_in)
            .chain([
                function_call("a"),
                function_call("b"),
                function_result("a", "rain"),
                function_result("b", "sun"),
            ]);
        Value::from_iter(steps)
    };
    let stand_in = thought("skip_thought_signature_validator");
    assert_eq!(input(messages()).await, with(Some(stand_in)));
    // Older ones require nothing.
    assert_eq!(input_as("gemini-2.5-flash", messages()).await, with(None));
}

/// A step of reasoning without its signature is refused.
#[tokio::test]
async fn reasoning_without_a_signature_is_left_out() {
    for data in [
        json!({}),
        json!({ "signature": "" }),
        json!({ "summary": [] }),
    ] {
        let mut reasoning = Reasoning::default();
        reasoning.text = "Hm.".into();
        reasoning.provider = ours(data);
        let alone = Message::new(Role::Assistant, [Part::Reasoning(reasoning.clone())]);
        let said = Message::new(
            Role::Assistant,
            [Part::Reasoning(reasoning), Part::from_text("So.")],
        );
        let sent = input([Message::user("Go on."), alone, said, Message::user("And?")]).await;
        assert_eq!(sent, json!([asked("Go on."), says("So."), asked("And?")]));
    }
}

#[tokio::test]
async fn nothing_comes_between_calls_and_their_results() {
    let said = Message::new(
        Role::Assistant,
        [
            signed("", "s"),
            tool_call("a").into(),
            tool_call("b").into(),
        ],
    );
    let with_words = answered("a", "rain").with_part(Part::from_text("(by the tool)"));
    let messages = [
        Message::user("Go on."),
        said.clone(),
        Message::user("Hurry!"),
        with_words,
        answered("b", "sun"),
        Message::user("And?"),
    ];
    let calls = [
        asked("Go on."),
        thought("s"),
        function_call("a"),
        function_call("b"),
    ];
    let expected = calls.clone().into_iter().chain([
        function_result("a", "rain"),
        function_result("b", "sun"),
        asked("Hurry!"),
        asked("(by the tool)"),
        asked("And?"),
    ]);
    assert_eq!(input(messages).await, Value::from_iter(expected));

    // Waiting content is written where the model speaks again, or at the end.
    let waits = [
        Message::user("Go on."),
        said,
        Message::user("Hurry!"),
        answered("a", "rain"),
    ];
    let expected = || {
        calls
            .clone()
            .into_iter()
            .chain([function_result("a", "rain"), asked("Hurry!")])
    };
    assert_eq!(input(waits.clone()).await, Value::from_iter(expected()));
    let spoken = waits
        .into_iter()
        .chain([Message::assistant("Yes."), answered("b", "sun")]);
    let expected = expected().chain([says("Yes."), function_result("b", "sun")]);
    assert_eq!(input(spoken).await, Value::from_iter(expected));
}

#[tokio::test]
async fn arguments_go_back_byte_for_byte() {
    let call = |arguments: &str| {
        Message::new(
            Role::Assistant,
            [Part::ToolCall(ToolCall::from_text(
                "a", "weather", arguments,
            ))],
        )
    };
    let sent = async |arguments: &str| {
        let request = ModelRequest::new([Message::user("hi"), call(arguments), answered("a", "")]);
        sent_as("gemini-2.5-pro", request).await
    };
    let exact = r#"{ "b": 1.10, "a": 12345678901234567890123 }"#;
    assert!(
        sent(exact)
            .await
            .text
            .contains(&format!("\"arguments\":{exact}}}"))
    );
    let body = sent("no object").await.body;
    assert_eq!(
        body["input"][1]["arguments"],
        json!({ "INVALID_JSON": "no object" })
    );
}

#[tokio::test]
async fn provider_data_is_added_where_it_belongs() {
    let mut said = Text::default();
    said.text = "Here.".into();
    said.provider = ours(json!({ "annotations": [{ "type": "url_citation" }] }));
    let mut called = tool_call("a");
    called.provider = ours(json!({ "signature": "on the call" }));
    let search = json!({ "type": "google_search_call", "id": "g", "signature": "s" });
    let mut another = ProviderData::default();
    another.set("gemini", json!({ "thoughtSignature": "t" }));
    let parts = [
        signed("Hm.", "s"),
        Part::Provider(ours(search.clone())),
        Part::Text(said),
        Part::Provider(another),
        Part::ToolCall(called),
    ];
    let sent = input([Message::user("hi"), Message::new(Role::Assistant, parts)]).await;
    let mut reasoning = thought("s");
    reasoning["summary"] = json!([{ "type": "text", "text": "Hm." }]);
    let mut call = function_call("a");
    call["signature"] = "on the call".into();
    let text =
        json!({ "type": "text", "text": "Here.", "annotations": [{ "type": "url_citation" }] });
    let output = json!({ "type": "model_output", "content": [text] });
    assert_eq!(sent, json!([asked("hi"), reasoning, search, output, call]));
}

#[tokio::test]
async fn settings_become_the_generation_config() {
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.25);
    settings.max_tokens = Some(100);
    settings.stop = vec!["END".into()];
    settings.seed = Some(7);
    settings.reasoning_effort = Some(ReasoningEffort::Low);
    // It needs no field.
    settings.prompt_cache = Some(PromptCache::new());
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "answer".into(),
        schema: json!({ "type": "object" }),
        strict: true,
    });
    settings.extra = json!({ "generation_config": { "thinking_summaries": "auto", "seed": null } })
        .as_object()
        .unwrap()
        .clone();
    let body = sent(settings).await;
    let expected = json!({
        "temperature": 0.5,
        "top_p": 0.25,
        "max_output_tokens": 100,
        "stop_sequences": ["END"],
        "thinking_level": "low",
        "thinking_summaries": "auto",
    });
    assert_eq!(body["generation_config"], expected);
    let format =
        json!({ "type": "text", "mime_type": "application/json", "schema": { "type": "object" } });
    assert_eq!(body["response_format"], format);
    for (format, expected) in [
        (
            ResponseFormat::Json,
            json!({ "type": "text", "mime_type": "application/json" }),
        ),
        (
            ResponseFormat::Text,
            json!({ "type": "text", "mime_type": "text/plain" }),
        ),
    ] {
        let mut settings = Settings::default();
        settings.response_format = Some(format);
        assert_eq!(sent(settings).await["response_format"], expected);
    }
}

#[tokio::test]
async fn efforts_are_levels() {
    for (effort, level) in [
        (ReasoningEffort::Minimal, "minimal"),
        (ReasoningEffort::Low, "low"),
        (ReasoningEffort::Medium, "medium"),
        (ReasoningEffort::High, "high"),
        (ReasoningEffort::Other("xhigh".into()), "xhigh"),
    ] {
        let mut settings = Settings::default();
        settings.reasoning_effort = Some(effort);
        assert_eq!(
            sent(settings).await["generation_config"],
            json!({ "thinking_level": level })
        );
    }
    let mut settings = Settings::default();
    settings.reasoning_effort = Some(ReasoningEffort::None);
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    assert!(refused(request).await.contains("`Minimal`"));
}

#[tokio::test]
async fn tools_and_the_choice_among_them() {
    let function = json!({
        "type": "function",
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    });
    for (choice, expected) in [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("any")),
        (
            ToolChoice::Tool("weather".into()),
            json!({ "allowed_tools": { "mode": "any", "tools": ["weather"] } }),
        ),
    ] {
        let mut settings = extra(json!({ "tools": [{ "type": "google_search" }] }));
        settings.tool_choice = Some(choice);
        let body = sent_as("gemini-3.6-flash", with_tool(settings.clone()))
            .await
            .body;
        assert_eq!(
            body["tools"],
            json!([function, { "type": "google_search" }])
        );
        assert_eq!(body["generation_config"]["tool_choice"], expected);
        // A choice without functions is refused.
        let body = sent(settings).await;
        assert_eq!(body["tools"], json!([{ "type": "google_search" }]));
        assert_eq!(body.get("generation_config"), None);
    }
}

#[tokio::test]
async fn an_unsendable_request_is_an_error() {
    let mut settings = Settings::default();
    settings.parallel_tool_calls = Some(false);
    assert!(
        refused(with_tool(settings))
            .await
            .contains("parallel_tool_calls")
    );
    let mut settings = Settings::default();
    settings.seed = Some(u64::MAX);
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    assert!(refused(request).await.contains("too large"));
    let system = Message::new(
        Role::System,
        [Part::image(MediaSource::base64("image/png", "aQ=="))],
    );
    assert!(
        refused(ModelRequest::new([system]))
            .await
            .contains("only text")
    );
}

#[tokio::test]
async fn extra_fields_replace_ours_and_the_caller_the_revision() {
    let body = sent(extra(
        json!({ "store": null, "service_tier": "flex", "model": "other" }),
    ))
    .await;
    assert_eq!(body.get("store"), None);
    assert_eq!(
        (&body["service_tier"], &body["model"]),
        (&json!("flex"), &json!("other"))
    );
    let server = Server::start([answers(json!([says("ok")]))]).await;
    let builder = tower_agent_providers::gemini::GeminiInteractions::builder();
    let builder = builder.base_url(&server.base_url).api_key("").model("m");
    let model = builder
        .header("api-revision", "2030-01-01")
        .build()
        .unwrap();
    call(model, ModelRequest::default()).await.unwrap();
    assert_eq!(server.only().header("api-revision"), Some("2030-01-01"));
}
