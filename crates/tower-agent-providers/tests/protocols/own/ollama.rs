//! Features that only Ollama has.

use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, ProviderData, Reasoning, ToolCall, ToolResult};
use tower_agent::model::{FinishReason, ReasoningEffort, ResponseFormat, ToolChoice};
use tower_agent::stream::Delta;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Settings, Tool, Usage,
};
use tower_agent_providers::ollama::{Chat, Ollama};
use tower_agent_providers::{HttpClient, HttpModelBuilder, Protocol};

use crate::server::{Reply, Seen, Server, chunked_as, json as reply, whole};
use test_support::{arguments, begins, call, deltas, stream, text};

fn builder(server: &Server) -> HttpModelBuilder<Chat> {
    Ollama::builder()
        .base_url(&server.base_url)
        .api_key("")
        .model("qwen3")
}

fn model(server: &Server) -> Ollama<HttpClient> {
    builder(server).build().unwrap()
}

fn lines(lines: &[Value]) -> Reply {
    chunked_as(
        "application/x-ndjson",
        lines.iter().map(|line| format!("{line}\n")),
    )
}

fn piece(message: Value) -> Value {
    json!({ "model": "qwen3", "message": message, "done": false })
}

fn done(reason: &str) -> Value {
    let message = json!({ "role": "assistant", "content": "" });
    json!({ "model": "qwen3", "message": message, "done": true, "done_reason": reason })
}

fn answer(message: Value) -> Value {
    json!({ "model": "qwen3", "message": message, "done": true, "done_reason": "stop" })
}

fn says(text: &str) -> Reply {
    reply(
        200,
        &answer(json!({ "role": "assistant", "content": text })),
    )
}

async fn sent(request: ModelRequest) -> Seen {
    let server = Server::start([says("ok")]).await;
    call(model(&server), request).await.unwrap();
    server.only()
}

async fn sent_messages(messages: impl IntoIterator<Item = Message>) -> Value {
    sent(ModelRequest::new(Vec::from_iter(messages))).await.body["messages"].clone()
}

async fn sent_settings(settings: Settings) -> Value {
    let mut body = sent(ModelRequest::new([Message::user("hi")]).with_settings(settings))
        .await
        .body;
    for always in ["messages", "model", "stream", "truncate"] {
        assert!(
            body.as_object_mut().unwrap().remove(always).is_some(),
            "{always}"
        );
    }
    body
}

async fn refused(request: ModelRequest) -> String {
    let server = Server::start([]).await;
    let error = call(model(&server), request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(server.seen().is_empty(), "nothing is sent");
    error.message().to_owned()
}

fn tools() -> Arc<Vec<Arc<ToolDeclaration>>> {
    Arc::new(vec![Arc::new(ToolDeclaration::new(
        "now",
        "Tells the time.",
    ))])
}

#[tokio::test]
async fn a_plain_call() {
    let mut request = ModelRequest::new([Message::user("Hello.")]).with_tools(tools());
    request.add_instructions("Be brief.");
    let parameters = json!({ "type": "object", "properties": {} });
    let function =
        json!({ "name": "now", "description": "Tells the time.", "parameters": parameters });
    let expected = json!({
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Hello." },
        ],
        "model": "qwen3",
        "tools": [{ "type": "function", "function": function }],
        // Otherwise the server drops messages without a word.
        "truncate": false,
        "stream": false,
    });
    let seen = sent(request).await;
    assert_eq!(seen.body, expected);
    assert_eq!(seen.header("authorization"), None);
    assert!(
        seen.header("accept")
            .unwrap()
            .contains("application/x-ndjson")
    );
}

#[tokio::test]
async fn a_streamed_call_asks_for_a_stream() {
    let server = Server::start([lines(&[done("stop")])]).await;
    stream(model(&server), ModelRequest::default())
        .await
        .0
        .unwrap();
    assert_eq!(server.only().body["stream"], true);
}

#[tokio::test]
async fn settings_are_options() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.9);
    settings.max_tokens = Some(100);
    settings.stop = vec!["END".into()];
    settings.seed = Some(7);
    settings.parallel_tool_calls = Some(false);
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "A".into(),
        schema: schema.clone(),
        strict: true,
    });
    settings.extra = json!({
        "keep_alive": "10m",
        "options": { "num_ctx": 8192, "temperature": 0.1, "top_p": null, "top_k": 40 },
    })
    .as_object()
    .unwrap()
    .clone();
    let expected = json!({
        "format": schema,
        "keep_alive": "10m",
        "options": {
            "num_predict": 100,
            "stop": ["END"],
            "seed": 7,
            "num_ctx": 8192,
            "temperature": 0.1,
            "top_k": 40,
        },
    });
    assert_eq!(sent_settings(settings).await, expected);
    let mut settings = Settings::default();
    settings.response_format = Some(ResponseFormat::Json);
    assert_eq!(sent_settings(settings).await, json!({ "format": "json" }));
    let mut settings = Settings::default();
    settings.response_format = Some(ResponseFormat::Text);
    assert_eq!(sent_settings(settings).await, json!({}));
}

#[tokio::test]
async fn the_size_of_the_context() {
    let mut settings = Settings::default();
    settings
        .extra
        .insert("options".into(), json!({ "num_ctx": 4 }));
    settings.extra.insert("truncate".into(), true.into());
    for (settings, size, truncate) in [(Settings::default(), 9, false), (settings, 4, true)] {
        let server = Server::start([says("ok")]).await;
        let model = builder(&server).num_ctx(9).build().unwrap();
        call(model, ModelRequest::default().with_settings(settings))
            .await
            .unwrap();
        let body = server.only().body;
        assert_eq!(body["options"], json!({ "num_ctx": size }));
        assert_eq!(body["truncate"], truncate);
    }
}

#[tokio::test]
async fn whether_and_how_much_to_think() {
    let other = |word: &'static str| ReasoningEffort::Other(word.into());
    for (effort, think) in [
        (ReasoningEffort::None, json!(false)),
        (ReasoningEffort::Low, json!("low")),
        (ReasoningEffort::Medium, json!("medium")),
        (ReasoningEffort::High, json!("high")),
        (other("max"), json!("max")),
        (other("true"), json!(true)),
        (other("false"), json!(false)),
    ] {
        let mut settings = Settings::default();
        settings.reasoning_effort = Some(effort);
        assert_eq!(sent_settings(settings).await, json!({ "think": think }));
    }
}

#[tokio::test]
async fn settings_that_the_protocol_lacks_are_errors() {
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        ModelRequest::new([Message::user("hi")])
            .with_settings(settings)
            .with_tools(tools())
    };
    for (change, word) in [
        (
            (|settings| settings.reasoning_effort = Some(ReasoningEffort::Minimal))
                as fn(&mut Settings),
            "`Minimal`",
        ),
        (
            |settings| settings.tool_choice = Some(ToolChoice::Required),
            "tool choice",
        ),
        (
            |settings| settings.tool_choice = Some(ToolChoice::Tool("now".into())),
            "tool choice",
        ),
        (
            |settings| settings.parallel_tool_calls = Some(false),
            "parallel_tool_calls",
        ),
    ] {
        let message = refused(with(change)).await;
        assert!(message.contains(word), "{message}");
    }
    let document = Media::new(MediaSource::base64("application/pdf", "JVBE"));
    for (part, word) in [
        (
            Part::image(MediaSource::url("https://example.com/cat.png")),
            "image by URL",
        ),
        (
            Part::image(MediaSource::file("file_1")),
            "image by URL or file id",
        ),
        (
            Part::audio(MediaSource::base64("audio/wav", "UklG")),
            "audio",
        ),
        (Part::document(document), "document"),
    ] {
        let result = ToolResult::new(&ToolCall::new("a", "look", json!({})), [part.clone()]);
        for (message, place) in [
            (Message::new(Role::User, [part]), "messages[0].parts[0]: "),
            (Message::tool(result), "messages[0].parts[0].parts[0]: "),
        ] {
            let message = refused(ModelRequest::new([message])).await;
            assert!(
                message.starts_with(place) && message.contains(word),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn tools_unless_they_must_not_be_called() {
    for (choice, has_tools) in [
        (None, true),
        (Some(ToolChoice::Auto), true),
        (Some(ToolChoice::None), false),
    ] {
        let mut settings = Settings::default();
        settings.tool_choice = choice;
        let request = ModelRequest::new([Message::user("hi")]);
        let body = sent(request.with_settings(settings).with_tools(tools()))
            .await
            .body;
        assert_eq!(body.get("tools").is_some(), has_tools);
    }
}

#[tokio::test]
async fn every_kind_of_message() {
    let mut thought = Reasoning::default();
    thought.text = "Hm.".into();
    thought.provider.set("ollama", json!({}));
    let first = ToolCall::new("a", "look", json!({ "at": 1 }));
    let second = ToolCall::new("b", "look", json!({}));
    let image = Part::image(MediaSource::base64("image/png", "iVBO"));
    let said = [
        Part::Reasoning(thought),
        Part::reasoning("Of another provider."),
        Part::from_text("I "),
        Part::from_text("look."),
        Part::ToolCall(first.clone()),
        Part::ToolCall(second.clone()),
    ];
    let messages = sent_messages([
        Message::system("Be kind."),
        Message::new(
            Role::User,
            [
                Part::from_text("Look"),
                Part::from_text("here."),
                image.clone(),
            ],
        ),
        Message::new(Role::Assistant, said),
        Message::tool(ToolResult::new(&first, [Part::from_text("A cat."), image])),
        Message::tool(ToolResult::new(
            &second,
            [Part::from_text("No."), Part::from_text("Way.")],
        )),
        Message::assistant("Seen."),
    ])
    .await;
    let called = |id: &str, arguments: Value| json!({ "id": id, "function": { "name": "look", "arguments": arguments } });
    let expected = json!([
        { "role": "system", "content": "Be kind." },
        { "role": "user", "content": "Look\nhere.", "images": ["iVBO"] },
        {
            "role": "assistant",
            "content": "I look.",
            "thinking": "Hm.",
            "tool_calls": [called("a", json!({ "at": 1 })), called("b", json!({}))],
        },
        {
            "role": "tool", "content": "A cat.", "tool_name": "look", "tool_call_id": "a",
            "images": ["iVBO"],
        },
        { "role": "tool", "content": "No.\nWay.", "tool_name": "look", "tool_call_id": "b" },
        { "role": "assistant", "content": "Seen." },
    ]);
    assert_eq!(messages, expected);
}

#[tokio::test]
async fn provider_data_adds_fields() {
    let mut data = ProviderData::default();
    data.set("ollama", json!({ "new": 1 }));
    let mut message = Message::user("hi");
    *message.provider_mut() = data;
    let expected = json!([{ "role": "user", "content": "hi", "new": 1 }]);
    assert_eq!(sent_messages([message]).await, expected);
}

async fn both(whole: Value, pieces: &[Value]) -> [ModelResponse; 2] {
    let server = Server::start([reply(200, &whole), lines(pieces)]).await;
    let plain = call(model(&server), ModelRequest::default()).await.unwrap();
    let streamed = stream(model(&server), ModelRequest::default())
        .await
        .0
        .unwrap();
    [plain, streamed]
}

#[tokio::test]
async fn thinking_is_reasoning_and_goes_back() {
    let call = json!({ "function": { "name": "look", "arguments": { "at": 1 } } });
    let whole = answer(json!({
        "role": "assistant", "content": "I look.", "thinking": "Hm, hm.", "tool_calls": [call],
    }));
    let pieces = [
        piece(json!({ "role": "assistant", "content": "", "thinking": "Hm," })),
        piece(json!({ "role": "assistant", "content": "", "thinking": " hm." })),
        piece(json!({ "role": "assistant", "content": "I look." })),
        piece(json!({ "role": "assistant", "content": "", "tool_calls": [call] })),
        done("stop"),
    ];
    for response in both(whole, &pieces).await {
        assert_eq!(
            response.finish_reason(),
            &FinishReason::ToolCalls,
            "whatever the reason says"
        );
        let sent = sent_messages([response.message().clone()]).await;
        let function = json!({ "name": "look", "arguments": { "at": 1 } });
        let expected = json!([{
            "role": "assistant", "content": "I look.", "thinking": "Hm, hm.",
            "tool_calls": [{ "id": "call_0_0", "function": function }],
        }]);
        assert_eq!(sent, expected);
    }
    // Without an answer behind it.
    let whole = answer(json!({ "content": "", "thinking": "Hm." }));
    for response in both(whole.clone(), &[whole]).await {
        let sent = sent_messages([response.message().clone()]).await;
        let expected = json!([{ "role": "assistant", "content": "", "thinking": "Hm." }]);
        assert_eq!(sent, expected);
    }
}

#[tokio::test]
async fn calls_without_ids_are_told_apart_in_all_turns() {
    let call_of = |at: u32| json!({ "function": { "name": "look", "arguments": { "at": at } } });
    let two = json!({ "content": "", "tool_calls": [call_of(1), call_of(2)] });
    for is_stream in [false, true] {
        let of = |message: Value| {
            if is_stream {
                lines(&[piece(message), done("stop")])
            } else {
                reply(200, &answer(message))
            }
        };
        let replies = [
            of(two.clone()),
            of(two.clone()),
            of(json!({ "content": "Seen." })),
        ];
        let server = Server::start(replies).await;
        let look = Tool::function("look", "Looks.", |arguments: Value| arguments.to_string());
        let agent = Agent::builder(model(&server)).tool(look).build().unwrap();
        let response = if is_stream {
            agent.stream("Look!").response().await
        } else {
            agent.run("Look!").await
        };
        assert_eq!(response.unwrap().text(), "Seen.");
        let seen = server.seen();
        let messages = seen[2].body["messages"].as_array().unwrap();
        let mut ids = Vec::new();
        for turn in [&messages[1..4], &messages[4..7]] {
            for (at, result) in [(0, &turn[1]), (1, &turn[2])] {
                let id = &turn[0]["tool_calls"][at]["id"];
                assert_eq!(id, &result["tool_call_id"]);
                assert_eq!(result["content"], format!("{{\"at\":{}}}", at + 1));
                assert_eq!(result["tool_name"], "look");
                ids.push(id.clone());
            }
        }
        ids.sort_by_key(Value::to_string);
        ids.dedup();
        assert_eq!(ids.len(), 4, "{ids:?}");
    }
}

#[tokio::test]
async fn arguments_come_and_go_byte_for_byte() {
    const WRITTEN: &str =
        r#"{ "b":"Z\u00fcrich",  "a" : 123456789012345678901234567890 , "c":1.10 }"#;
    let call_of = format!("{{\"function\":{{\"name\":\"pay\",\"arguments\":{WRITTEN}}}}}");
    let body = format!("{{\"message\":{{\"tool_calls\":[{call_of}]}},\"done\":true}}");
    let plain = whole(200, &[("content-type", "application/json")], &body);
    let streamed = chunked_as("application/x-ndjson", [format!("{body}\n")]);
    let server = Server::start([plain, streamed]).await;
    let plain = call(model(&server), ModelRequest::default()).await.unwrap();
    let (streamed, events) = stream(model(&server), ModelRequest::default()).await;
    assert_eq!(
        deltas(events),
        [begins(0, "call_0_0", "pay"), arguments(0, WRITTEN)]
    );
    for response in [plain, streamed.unwrap()] {
        let call = response.message().tool_calls().next().unwrap();
        assert_eq!(call.arguments.as_str(), WRITTEN);
        let seen = sent(ModelRequest::new([response.message().clone()])).await;
        assert!(
            seen.text.contains(&format!("\"arguments\":{WRITTEN}}}")),
            "{}",
            seen.text
        );
    }
}

#[tokio::test]
async fn arguments_of_odd_forms() {
    for (arguments, expected) in [
        (json!(null), "{}"),
        (json!("{\"a\":1}"), "{\"a\":1}"),
        (json!({}), "{}"),
    ] {
        let call = json!({ "id": null, "function": { "name": "look", "arguments": arguments } });
        let whole = answer(json!({ "content": null, "tool_calls": [call] }));
        for response in both(whole.clone(), &[whole]).await {
            let call = response.message().tool_calls().next().unwrap();
            assert_eq!(call.arguments.as_str(), expected);
        }
    }
    let server = Server::start([reply(200, &answer(json!({ "tool_calls": [{}] })))]).await;
    let error = call(model(&server), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.message().contains("without a name"), "{error}");
}

#[tokio::test]
async fn why_it_is_done() {
    let other = |word: &'static str| FinishReason::Other(word.into());
    for (word, reason) in [
        ("stop", FinishReason::Stop),
        ("", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("load", other("load")),
        ("unload", other("unload")),
    ] {
        let mut whole = answer(json!({ "role": "assistant", "content": "a" }));
        whole["done_reason"] = word.into();
        whole["eval_count"] = 3.into();
        for response in both(whole.clone(), &[whole]).await {
            assert_eq!(response.finish_reason(), &reason);
            // The prompt was read from the cache.
            assert_eq!(response.usage(), Usage::new(0, 3));
        }
    }
}

#[tokio::test]
async fn errors_are_texts() {
    for (status, message, kind) in [
        (
            400,
            "\"llama3\" does not support tools",
            ErrorKind::InvalidRequest,
        ),
        (
            400,
            "the input length exceeds the context length",
            ErrorKind::ContextLength,
        ),
        (401, "unauthorized", ErrorKind::Auth),
        (404, "model 'x' not found", ErrorKind::NotFound),
        (429, "too many concurrent requests", ErrorKind::RateLimited),
        (
            500,
            "llama runner process has terminated",
            ErrorKind::Provider,
        ),
        (503, "server busy, please try again.", ErrorKind::Overloaded),
    ] {
        let server = Server::start([reply(status, &json!({ "error": message }))]).await;
        let error = call(model(&server), ModelRequest::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{message}");
        assert!(error.message().starts_with(message), "{error}");
    }
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream() {
    for (message, kind) in [
        (
            "an error was encountered while running the model: EOF",
            ErrorKind::Provider,
        ),
        (
            "the input length exceeds the context length; raise `num_ctx`",
            ErrorKind::ContextLength,
        ),
    ] {
        let error = json!({ "error": message.split(';').next() });
        let first = piece(json!({ "role": "assistant", "content": "Hel" }));
        let server = Server::start([lines(&[first, error.clone()]), lines(&[error])]).await;
        let (response, events) = stream(model(&server), ModelRequest::default()).await;
        assert_eq!(deltas(events), [text("Hel")]);
        let error = response.unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, message));
        let (response, events) = stream(model(&server), ModelRequest::default()).await;
        assert_eq!(deltas(events), Vec::<Delta>::new());
        assert_eq!(response.unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn a_plain_answer_that_is_not_done() {
    let server = Server::start([reply(200, &piece(json!({ "content": "Hel" })))]).await;
    let error = call(model(&server), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(error.message(), "the response is incomplete");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_missing_a_key() {
    let refuse = tower::service_fn(|_: http::Request<_>| async {
        Err::<http::Response<String>, _>(std::io::Error::other("refused"))
    });
    let model = Ollama::builder()
        .base_url(Chat::BASE_URL)
        .model("qwen3")
        .build_with(refuse);
    let error = call(model.unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(!error.message().contains("key"), "{error}");
}

#[test]
fn every_form_of_ollama_host() {
    for (host, url) in [
        ("", "http://127.0.0.1:11434/"),
        ("example.com", "http://example.com:11434/"),
        ("example.com:1234", "http://example.com:1234/"),
        (":1234", "http://127.0.0.1:1234/"),
        ("0.0.0.0", "http://127.0.0.1:11434/"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234/"),
        ("[::]:1234", "http://[::1]:1234/"),
        ("::1", "http://[::1]:11434/"),
        ("[::1]", "http://[::1]:11434/"),
        ("[fe80::2]:1234", "http://[fe80::2]:1234/"),
        ("http://example.com", "http://example.com:80/"),
        ("https://example.com", "https://example.com:443/"),
        (
            "https://example.com:8443/ollama",
            "https://example.com:8443/ollama",
        ),
        ("example.com:nonsense", "http://example.com:11434/"),
        ("example.com:99999", "http://example.com:11434/"),
        (" example.com/ ", "http://example.com:11434/"),
        ("ollama.com", "https://ollama.com:443/"),
        ("http://example.com:1/v1/", "http://example.com:1/"),
        ("http://example.com:1/api", "http://example.com:1/"),
    ] {
        assert_eq!(Chat::default().base_url(host), url, "{host}");
    }
}

/// Says to a test that it is a child, and not asked for by `--include-ignored`.
const CHILD: &str = "TOWER_AGENT_CHILD_TEST";

#[tokio::test(flavor = "multi_thread")]
async fn the_address_and_the_key_come_from_the_environment() {
    for key in [None, Some("secret")] {
        let server = Server::start([says("ok")]).await;
        let host = server
            .base_url
            .trim_start_matches("http://")
            .trim_end_matches("/v1")
            .to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "own::ollama::child_calls"]);
        child
            .env(CHILD, "1")
            .env_remove("OLLAMA_API_KEY")
            .env("OLLAMA_HOST", host);
        child.envs(key.map(|key| ("OLLAMA_API_KEY", key)));
        let output = tokio::task::block_in_place(|| child.output()).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        let seen = server.only();
        assert_eq!(seen.line(), "POST /api/chat");
        let key = key.map(|key| format!("Bearer {key}"));
        assert_eq!(seen.header("authorization"), key.as_deref());
    }
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_calls() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    call(
        Ollama::from_env().unwrap().with_model("qwen3"),
        ModelRequest::default(),
    )
    .await
    .unwrap();
}
