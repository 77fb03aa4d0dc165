//! OpenAI Responses: items, what goes back of them, and what servers make of the protocol.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, ProviderData, Text, ToolCall, ToolResult};
use tower_agent::model::{FinishReason, PromptCache, ReasoningEffort, ResponseFormat, ToolChoice};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Settings};
use tower_agent_providers::HttpClient;
use tower_agent_providers::openai::OpenAiResponses;

use crate::answer::{Said, said};
use crate::server::{Reply, Server, chunked, json as reply};
use test_support::{call, deltas, stream};

fn model(server: &Server) -> OpenAiResponses<HttpClient> {
    OpenAiResponses::builder()
        .base_url(&server.base_url)
        .api_key("")
        .model("m")
        .build()
        .unwrap()
}

fn output(items: Value) -> Reply {
    reply(
        200,
        &json!({ "id": "resp_1", "status": "completed", "output": items }),
    )
}

fn ok() -> Reply {
    output(json!([{ "type": "message", "content": [{ "type": "output_text", "text": "ok" }] }]))
}

fn ours(value: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("openai_responses", value);
    data.set("openai", json!({ "not": "sent" }));
    data
}

async fn sent(request: ModelRequest) -> Value {
    let server = Server::start([ok()]).await;
    call(model(&server), request).await.unwrap();
    server.only().body
}

fn extra(fields: Value) -> serde_json::Map<String, Value> {
    fields.as_object().unwrap().clone()
}

async fn sent_settings(settings: Settings) -> Value {
    sent(ModelRequest::new([Message::user("hi")]).with_settings(settings)).await
}

async fn sent_input(messages: impl IntoIterator<Item = Message>) -> Value {
    sent(ModelRequest::new(Vec::from_iter(messages))).await["input"].clone()
}

/// The input after a response has been added to the conversation.
async fn sent_after(response: &ModelResponse) -> Vec<Value> {
    let input = sent_input([Message::user("hi"), response.message().clone()]).await;
    input.as_array().unwrap()[1..].to_vec()
}

async fn answered(reply: Reply) -> Result<ModelResponse, Error> {
    let server = Server::start([reply]).await;
    call(model(&server), ModelRequest::default()).await
}

async fn streamed(events: impl IntoIterator<Item = Value>) -> Result<ModelResponse, Error> {
    let events = events.into_iter().map(|event| format!("data: {event}\n\n"));
    let server = Server::start([chunked(events)]).await;
    stream(model(&server), ModelRequest::default()).await.0
}

fn completed() -> Value {
    json!({ "type": "response.completed", "response": { "status": "completed" } })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema alone")]
struct Closed {
    city: String,
    days: Vec<Day>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema alone")]
struct Day {
    name: Option<String>,
}

#[tokio::test]
async fn a_request_says_all_and_keeps_nothing_on_the_server() {
    let closed = ToolDeclaration::new("closed", "Closed.").with_parameters(json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "at": {
            "type": "object", "properties": {}, "required": [], "additionalProperties": false,
        } },
        "required": ["city", "at"],
        "additionalProperties": false,
    }));
    let open = ToolDeclaration::new("open", "Open.").with_parameters(json!({
        "type": "object",
        "properties": { "at": { "type": "object", "properties": { "x": { "type": "number" } } } },
        "required": ["at"],
        "additionalProperties": false,
    }));
    let mut search = ToolDeclaration::new("search", "Searches.");
    *search.provider_mut() = ours(json!({ "type": "web_search", "search_context_size": "low" }));
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.25);
    settings.max_tokens = Some(64);
    settings.reasoning_effort = Some(ReasoningEffort::Low);
    settings.tool_choice = Some(ToolChoice::Tool("closed".into()));
    settings.parallel_tool_calls = Some(false);
    settings.prompt_cache = Some(PromptCache::new().with_key("k"));
    settings.extra.insert("service_tier".into(), "flex".into());
    let schema = json!({ "type": "object" });
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "N".into(),
        schema: schema.clone(),
        strict: true,
    });
    let mut request = ModelRequest::new([Message::system("Rules."), Message::user("hi")])
        .with_settings(settings)
        .with_tools(Arc::new(
            [closed.clone(), open.clone(), search]
                .map(Arc::new)
                .to_vec(),
        ));
    request.add_instructions("Be brief.");
    let function = |tool: &ToolDeclaration, strict: bool| {
        json!({
            "type": "function", "name": tool.name(), "description": tool.description(),
            "parameters": tool.parameters(), "strict": strict,
        })
    };
    let expected = json!({
        "input": [
            { "type": "message", "role": "system", "content": "Rules." },
            { "type": "message", "role": "user", "content": "hi" },
        ],
        "model": "m",
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.25,
        "max_output_tokens": 64,
        "reasoning": { "effort": "low" },
        "text": { "format": {
            "type": "json_schema", "name": "N", "schema": schema, "strict": true,
        } },
        "prompt_cache_key": "k",
        "tools": [
            function(&closed, true),
            function(&open, false),
            { "type": "web_search", "search_context_size": "low" },
        ],
        "tool_choice": { "type": "function", "name": "closed" },
        "parallel_tool_calls": false,
        "service_tier": "flex",
    });
    assert_eq!(sent(request).await, expected);
}

#[tokio::test]
async fn a_tool_is_strict_if_its_schema_is_closed_and_of_what_strict_mode_reads() {
    let strict = async |tool: ToolDeclaration| {
        let request = ModelRequest::new([Message::user("hi")]);
        let body = sent(request.with_tools(Arc::new(vec![Arc::new(tool)]))).await;
        body["tools"][0]["strict"].as_bool().unwrap()
    };
    let tool = || ToolDeclaration::new("t", "T.");
    let property = |schema: Value| {
        tool().with_parameters(json!({
            "type": "object", "properties": { "a": schema }, "required": ["a"],
            "additionalProperties": false,
        }))
    };
    assert!(!strict(tool()).await, "open, though without properties");
    assert!(strict(property(json!({ "type": ["string", "null"] }))).await);
    assert!(
        strict(property(
            json!({ "anyOf": [{ "type": "string" }, { "enum": [1] }] })
        ))
        .await
    );
    for schema in [
        json!({}),
        json!(true),
        json!({ "type": "integer", "format": "uint32" }),
        json!({ "type": "string", "minLength": 1 }),
        json!({ "type": "object" }),
        json!({ "type": "array", "items": { "type": "object", "properties": {} } }),
        json!({ "anyOf": [{ "type": ["object", "null"], "additionalProperties": false }] }),
        json!({ "oneOf": [{ "type": "string" }] }),
    ] {
        assert!(!strict(property(schema.clone())).await, "{schema}");
    }
    // An option may be left out.
    assert!(!strict(tool().with_arguments::<Closed>()).await);
}

#[tokio::test]
async fn extra_fields_stand_beside_the_schema_and_the_encrypted_reasoning() {
    let mut settings = Settings::default();
    settings.reasoning_effort = Some(ReasoningEffort::Low);
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "N".into(),
        schema: json!({ "type": "object" }),
        strict: true,
    });
    settings.extra = extra(json!({
        "text": { "verbosity": "low" },
        "include": ["web_search_call.action.sources", "reasoning.encrypted_content"],
        "reasoning": { "summary": "auto" },
        "store": true,
    }));
    let body = sent_settings(settings).await;
    assert_eq!(body["text"]["verbosity"], "low");
    assert_eq!(body["text"]["format"]["name"], "N");
    assert_eq!(
        body["include"],
        json!([
            "reasoning.encrypted_content",
            "web_search_call.action.sources"
        ]),
    );
    assert_eq!(
        body["reasoning"],
        json!({ "effort": "low", "summary": "auto" })
    );
    assert_eq!(body["store"], true);
}

#[tokio::test]
async fn encrypted_reasoning_is_requested_from_models_that_may_reason() {
    for (name, may) in [
        ("gpt-5.2", true),
        ("o4-mini", true),
        ("qwen/qwen3-next", true),
        ("a-model-to-come", true),
        ("gpt-4o-mini", false),
        ("openai/gpt-4.1", false),
        ("chatgpt-4o-latest", false),
        ("gpt-5-chat-latest", false),
    ] {
        let mut settings = Settings::default();
        settings.model = Some(name.into());
        let body = sent_settings(settings).await;
        assert_eq!(body.get("include").is_some(), may, "{name}");
        assert_eq!(body["store"], false);
    }
    // A deployment has a name that does not say what it is.
    for is_requested in [true, false] {
        let server = Server::start([ok()]).await;
        let model = OpenAiResponses::builder()
            .base_url(&server.base_url)
            .api_key("")
            .model("gpt-4-of-ours")
            .encrypted_reasoning(is_requested)
            .build()
            .unwrap();
        call(model, ModelRequest::default()).await.unwrap();
        let body = server.only().body;
        assert_eq!(body.get("include").is_some(), is_requested);
    }
}

#[tokio::test]
async fn no_extra_field_removes_the_schema_or_the_encrypted_reasoning() {
    for (field, fields) in [
        ("include", json!({ "include": null })),
        ("include", json!({ "include": "web_search_call.results" })),
        ("text.format", json!({ "text": null })),
        ("text.format", json!({ "text": { "format": null } })),
        (
            "text.format",
            json!({ "text": { "format": { "type": "text" } } }),
        ),
    ] {
        let mut settings = Settings::default();
        settings.response_format = Some(ResponseFormat::JsonSchema {
            name: "N".into(),
            schema: json!({ "type": "object" }),
            strict: true,
        });
        settings.extra = extra(fields.clone());
        let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
        let server = Server::start([]).await;
        let error = call(model(&server), request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{fields}");
        assert!(error.message().contains(field), "{fields}: {error}");
    }
}

#[tokio::test]
async fn media_of_users_and_of_tools() {
    let png = MediaSource::base64("image/png", "iVBORw0=");
    let parts = [
        Part::from_text("Look."),
        Part::image(MediaSource::url("https://example.com/a.png")),
        Part::image(png.clone()),
        Part::image(MediaSource::file("file_1")),
        Part::audio(MediaSource::base64("audio/mpeg", "SUQz")),
        Part::document(MediaSource::url("https://example.com/a.pdf")),
        Part::document(
            Media::new(MediaSource::base64("application/pdf", "JVBERi0=")).with_name("a.pdf"),
        ),
        Part::document(MediaSource::file("file_2")),
    ];
    let shown = ToolCall::new("call_1", "look", json!({}));
    let picture = ToolResult::new(&shown, [Part::from_text("a cat"), Part::image(png)]);
    let words = ToolResult::new(&shown, [Part::from_text("a"), Part::from_text("b")]);
    let input = sent_input([
        Message::new(Role::User, parts),
        Message::tool(picture),
        Message::tool(words),
    ])
    .await;
    let expected = json!([
        { "type": "message", "role": "user", "content": [
            { "type": "input_text", "text": "Look." },
            { "type": "input_image", "image_url": "https://example.com/a.png" },
            { "type": "input_image", "image_url": "data:image/png;base64,iVBORw0=" },
            { "type": "input_image", "file_id": "file_1" },
            { "type": "input_audio", "input_audio": { "data": "SUQz", "format": "mp3" } },
            { "type": "input_file", "file_url": "https://example.com/a.pdf" },
            { "type": "input_file", "filename": "a.pdf",
              "file_data": "data:application/pdf;base64,JVBERi0=" },
            { "type": "input_file", "file_id": "file_2" },
        ] },
        { "type": "function_call_output", "call_id": "call_1", "output": [
            { "type": "input_text", "text": "a cat" },
            { "type": "input_image", "image_url": "data:image/png;base64,iVBORw0=" },
        ] },
        { "type": "function_call_output", "call_id": "call_1", "output": "a\nb" },
    ]);
    assert_eq!(input, expected);
}

#[tokio::test]
async fn the_data_of_this_protocol_is_added_where_it_is() {
    let mut text = Text::default();
    text.text = "hi".into();
    text.provider = ours(json!({ "more": 1 }));
    let mut image = Media::new(MediaSource::url("https://example.com/a.png"));
    image.provider = ours(json!({ "detail": "low" }));
    let own = Part::Provider(ours(json!({ "type": "input_video", "video_url": "u" })));
    let mut message = Message::new(Role::User, [Part::Text(text), Part::image(image), own]);
    *message.provider_mut() = ours(json!({ "role": "developer" }));
    let input = sent_input([message]).await;
    let expected = json!([{ "type": "message", "role": "developer", "content": [
        { "type": "input_text", "text": "hi", "more": 1 },
        { "type": "input_image", "image_url": "https://example.com/a.png", "detail": "low" },
        { "type": "input_video", "video_url": "u" },
    ] }]);
    assert_eq!(input, expected);
}

#[tokio::test]
async fn content_that_the_protocol_lacks_is_an_error() {
    let server = Server::start([]).await;
    let error = async |request: ModelRequest| call(model(&server), request).await.unwrap_err();
    let mut settings = Settings::default();
    settings.stop = vec!["END".into()];
    let stop = error(ModelRequest::default().with_settings(settings)).await;
    assert_eq!(stop.kind(), ErrorKind::InvalidRequest);
    assert!(stop.message().contains("`stop`"), "{stop}");
    let mut settings = Settings::default();
    settings.seed = Some(7);
    let seed = error(ModelRequest::default().with_settings(settings)).await;
    assert_eq!(seed.kind(), ErrorKind::InvalidRequest);
    assert!(seed.message().contains("`seed`"), "{seed}");
    let image = Part::image(MediaSource::url("https://example.com/a.png"));
    let image = error(ModelRequest::new([Message::new(Role::Assistant, [image])])).await;
    assert_eq!(image.kind(), ErrorKind::InvalidRequest);
    assert!(image.message().starts_with("messages[0]: "), "{image}");
    assert!(server.seen().is_empty());
}

/// All that OpenAI says of items, and two texts that are next to each other.
fn items() -> Value {
    json!([
        { "type": "reasoning", "id": "rs_1", "encrypted_content": "enc_1", "content": null,
          "status": null, "summary": [
            { "type": "summary_text", "text": "First." },
            { "type": "summary_text", "text": "Then." },
        ] },
        { "type": "web_search_call", "id": "ws_1", "status": "completed",
          "action": { "type": "search", "query": "cats", "sources": [] } },
        { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
          "phase": "commentary", "content": [
            { "type": "output_text", "text": "I look.", "logprobs": [], "annotations": [] },
        ] },
        { "type": "message", "id": "msg_2", "role": "assistant", "status": "completed",
          "phase": "final_answer", "content": [
            { "type": "output_text", "text": "Cats ", "annotations": [
                { "type": "url_citation", "url": "https://example.com", "title": "C",
                  "start_index": 0, "end_index": 4 },
            ] },
            { "type": "output_text", "text": "purr.", "annotations": [] },
        ] },
        { "type": "custom_tool_call", "id": "ctc_1", "call_id": "call_0", "name": "x", "input": "y" },
        { "type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed",
          "name": "look", "arguments": "{ \"at\":1 }" },
    ])
}

#[tokio::test]
async fn items_go_back_as_they_came() {
    let plain = answered(output(items())).await.unwrap();
    let done = items().as_array().unwrap().clone();
    let done = done.into_iter().enumerate().map(|(at, item)| {
        json!({ "type": "response.output_item.done", "output_index": at, "item": item })
    });
    let streamed = streamed(done.chain([completed()])).await.unwrap();
    let mut expected = items().as_array().unwrap().clone();
    // Nulls and what only the server says are left out.
    for field in ["content", "status"] {
        expected[0].as_object_mut().unwrap().remove(field);
    }
    expected[2]["content"][0]
        .as_object_mut()
        .unwrap()
        .remove("logprobs");
    for response in [plain, streamed] {
        let call = Said::Call {
            id: "call_1".into(),
            name: "look".into(),
            arguments: json!({ "at": 1 }),
        };
        let text = |text: &str| Said::Text(text.into());
        let thought = Said::Reasoning("First.\n\nThen.".into());
        let all = [
            thought,
            Said::Other,
            text("I look."),
            text("Cats "),
            text("purr."),
            Said::Other,
            call,
        ];
        assert_eq!(said(response.message()), all);
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        assert_eq!(sent_after(&response).await, expected);
    }
}

#[tokio::test]
async fn a_refusal_goes_back_as_one() {
    let items = json!([{ "type": "message", "id": "msg_1", "role": "assistant",
        "status": "completed", "content": [{ "type": "refusal", "refusal": "No." }] }]);
    let response = answered(output(items.clone())).await.unwrap();
    assert_eq!(sent_after(&response).await, *items.as_array().unwrap());
}

#[tokio::test]
async fn a_refusal_is_known_by_its_pieces() {
    let piece = json!({ "type": "response.refusal.delta", "delta": "No." });
    let response = streamed([piece, completed()]).await.unwrap();
    assert_eq!(response.text(), "No.");
    assert_eq!(response.finish_reason(), &FinishReason::Refusal);
}

#[tokio::test]
async fn reasoning_that_the_server_could_not_find_is_left_out() {
    let reasoning = |id: &str, encrypted: Value, content: Value| {
        json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": encrypted,
                "content": content })
    };
    let content = json!([{ "type": "reasoning_text", "text": "Hm." }]);
    let text = json!({ "type": "message", "role": "assistant",
                       "content": [{ "type": "output_text", "text": "ok" }] });
    let items = json!([
        reasoning("rs_1", json!(""), Value::Null),
        reasoning("rs_2", Value::Null, content.clone()),
        reasoning("rs_3", json!("enc"), json!([])),
        text,
        // Nothing follows it: the response was cut off.
        reasoning("rs_4", json!("enc"), Value::Null),
    ]);
    let response = answered(output(items)).await.unwrap();
    assert_eq!(said(response.message())[1], Said::Reasoning("Hm.".into()));
    let sent = sent_after(&response).await;
    let ids: Vec<_> = sent.iter().map(|item| item["id"].as_str()).collect();
    assert_eq!(ids, [Some("rs_2"), Some("rs_3"), None]);
    assert_eq!(sent[0]["content"], content);
    // Without ids of the server it is the plainest form.
    assert_eq!(
        sent[2],
        json!({ "type": "message", "role": "assistant", "content": "ok" })
    );
}

#[tokio::test]
async fn a_conversation_of_another_provider_is_sent() {
    let mut call = ToolCall::from_text("toolu_1", "look", "{}");
    call.provider.set("anthropic", json!({ "id": "no" }));
    let parts = [
        Part::reasoning("Hm."),
        Part::from_text("I "),
        Part::from_text("look."),
        call.into(),
    ];
    let input = sent_input([Message::new(Role::Assistant, parts)]).await;
    let expected = json!([
        { "type": "message", "role": "assistant", "content": "I look." },
        { "type": "function_call", "call_id": "toolu_1", "name": "look", "arguments": "{}" },
    ]);
    assert_eq!(input, expected);
}

/// As some gateways stream: the ids change with each event.
#[tokio::test]
async fn ids_that_change_with_each_event() {
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "type": format!("response.{kind}") });
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        event
    };
    let message = |id: &str, text: Value| json!({ "type": "message", "id": id, "content": text });
    let call = |id: &str, arguments: &str| {
        json!({ "type": "function_call", "id": id, "call_id": "call_1", "name": "look",
                "arguments": arguments })
    };
    let text = json!([{ "type": "output_text", "text": "ab" }]);
    let response = streamed([
        event(
            "output_item.added",
            json!({ "output_index": 0, "item": message("a", json!([])) }),
        ),
        event(
            "output_text.delta",
            json!({ "output_index": 0, "item_id": "b", "delta": "a" }),
        ),
        event(
            "output_text.delta",
            json!({ "output_index": 0, "item_id": "c", "delta": "b" }),
        ),
        event(
            "output_item.done",
            json!({ "output_index": 0, "item": message("d", text.clone()) }),
        ),
        event(
            "output_item.added",
            json!({ "output_index": 1, "item": call("e", "") }),
        ),
        event(
            "function_call_arguments.delta",
            json!({ "output_index": 1, "item_id": "f", "delta": "{}" }),
        ),
        event(
            "output_item.done",
            json!({ "output_index": 1, "item": call("g", "{}") }),
        ),
        event(
            "completed",
            json!({ "response": { "output": [message("h", text), call("i", "{}")] } }),
        ),
    ])
    .await
    .unwrap();
    let parts = said(response.message());
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert_eq!(parts[0], Said::Text("ab".into()));
    assert_eq!(sent_after(&response).await[1]["id"], "g");
}

#[tokio::test]
async fn items_that_come_only_with_the_last_event() {
    let last = json!({ "type": "response.completed", "response": { "output": items() } });
    let response = streamed([last]).await.unwrap();
    assert_eq!(said(response.message()).len(), 7);
    assert_eq!(sent_after(&response).await.len(), 6);
}

#[tokio::test]
async fn items_without_an_end() {
    let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look",
                       "status": "in_progress", "arguments": "" });
    let whole = json!({ "type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "now",
                        "arguments": "{\"a\":1}" });
    let response = streamed([
        json!({ "type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "H" }),
        json!({ "type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "m." }),
        json!({ "type": "response.output_text.delta", "item_id": "msg_1", "delta": "I look." }),
        json!({ "type": "response.output_item.added", "item": call }),
        json!({ "type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}" }),
        json!({ "type": "response.output_item.added", "item": whole }),
        completed(),
    ])
    .await
    .unwrap();
    let call = |id: &str, name: &str, arguments: Value| Said::Call {
        id: id.into(),
        name: name.into(),
        arguments,
    };
    let expected = [
        Said::Reasoning("Hm.".into()),
        Said::Text("I look.".into()),
        call("call_1", "look", json!({})),
        call("call_2", "now", json!({ "a": 1 })),
    ];
    assert_eq!(said(response.message()), expected);
    let sent = sent_after(&response).await;
    assert_eq!(sent[1]["id"], "fc_1");
    assert_eq!(
        sent[1].get("status"),
        None,
        "it is not in progress any more"
    );
}

/// Servers that send no pieces say texts and arguments at their end, and some do not repeat them in
/// the items.
#[tokio::test]
async fn what_only_the_end_of_a_part_says() {
    let message = json!({ "type": "message", "id": "m", "role": "assistant", "content": [] });
    let added = |item: &Value| json!({ "type": "response.output_item.added", "output_index": 0, "item": item });
    let ended = |item: &Value| json!({ "type": "response.output_item.done", "output_index": 0, "item": item });
    let last =
        |output: Value| json!({ "type": "response.completed", "response": { "output": output } });
    let text = json!({ "type": "response.output_text.done", "item_id": "m", "output_index": 0,
                       "content_index": 0, "text": "ok" });
    let part = json!({ "type": "response.content_part.done", "item_id": "m", "output_index": 0,
                       "content_index": 0, "part": { "type": "output_text", "text": "ok" } });
    for events in [
        vec![text.clone(), completed()],
        vec![part.clone(), completed()],
        vec![text.clone(), part.clone(), completed()],
        vec![added(&message), text.clone(), ended(&message), completed()],
        vec![added(&message), ended(&message), part.clone(), completed()],
        vec![text.clone(), last(json!([message]))],
        vec![added(&message), ended(&message), text, part, completed()],
        vec![
            json!({ "type": "response.output_text.done", "text": "ok" }),
            completed(),
        ],
    ] {
        let response = streamed(events.clone()).await.unwrap();
        let expected = [Said::Text("ok".into())];
        assert_eq!(said(response.message()), expected, "{events:?}");
    }

    let thought = json!({ "type": "response.reasoning_summary_text.done", "item_id": "rs",
                          "output_index": 0, "summary_index": 0, "text": "Hm." });
    let whole = json!({ "type": "response.reasoning_summary_part.done", "item_id": "rs",
                        "output_index": 0, "summary_index": 0,
                        "part": { "type": "summary_text", "text": "Hm." } });
    let refusal = json!({ "type": "response.refusal.done", "item_id": "m", "output_index": 1,
                          "content_index": 0, "refusal": "No." });
    let response = streamed([thought, whole, refusal, completed()])
        .await
        .unwrap();
    let expected = [Said::Reasoning("Hm.".into()), Said::Text("No.".into())];
    assert_eq!(said(response.message()), expected);
    assert_eq!(*response.finish_reason(), FinishReason::Refusal);
}

#[tokio::test]
async fn arguments_that_only_their_end_says() {
    let call = |arguments: &str| {
        json!({ "type": "function_call", "id": "fc", "call_id": "call_1", "name": "look",
                "arguments": arguments })
    };
    let nameless = json!({ "type": "function_call", "id": "fc", "call_id": "call_1" });
    let added = |item: &Value| json!({ "type": "response.output_item.added", "output_index": 0, "item": item });
    let ended = |item: &Value| json!({ "type": "response.output_item.done", "output_index": 0, "item": item });
    let last =
        |output: Value| json!({ "type": "response.completed", "response": { "output": output } });
    let whole = json!({ "type": "response.function_call_arguments.done", "item_id": "fc",
                        "output_index": 0, "name": "look", "arguments": "{\"q\":\"x\"}" });
    let mut object = whole.clone();
    object["arguments"] = json!({ "q": "x" });
    let mut other_id = whole.clone();
    other_id["item_id"] = "fc_of_this_event".into();
    other_id["output_index"] = 7.into();
    let piece = |delta: &str| {
        json!({ "type": "response.function_call_arguments.delta",
                                      "item_id": "fc", "output_index": 0, "delta": delta })
    };
    let brief = call("");
    for events in [
        vec![added(&brief), whole.clone(), ended(&brief), completed()],
        vec![added(&brief), whole.clone(), completed()],
        vec![added(&brief), ended(&brief), whole.clone(), completed()],
        vec![added(&nameless), whole.clone(), completed()],
        vec![
            added(&call("{}")),
            whole.clone(),
            ended(&call("{}")),
            completed(),
        ],
        vec![
            added(&brief),
            ended(&brief),
            last(json!([call("{\"q\": \"x\"}")])),
        ],
        vec![added(&brief), object, completed()],
        vec![added(&brief), other_id, completed()],
        // Of pieces that are a part of it, the rest is added.
        vec![added(&brief), piece("{\"q\":"), whole.clone(), completed()],
        vec![
            piece("{\"q\":"),
            piece("\"x\"}"),
            ended(&brief),
            completed(),
        ],
        vec![
            added(&brief),
            piece("{\"q\":\"x\"}"),
            whole.clone(),
            ended(&brief),
            completed(),
        ],
        // The same in other spacing.
        vec![
            added(&brief),
            piece("{ \"q\" : \"x\" }"),
            whole,
            completed(),
        ],
    ] {
        let response = streamed(events.clone()).await;
        let response = response.unwrap_or_else(|error| panic!("{error}: {events:?}"));
        let calls: Vec<_> = response.message().tool_calls().collect();
        assert_eq!(calls.len(), 1, "{events:?}");
        assert_eq!(calls[0].arguments, json!({ "q": "x" }), "{events:?}");
        assert_eq!((&*calls[0].id, &*calls[0].name), ("call_1", "look"));
    }
    // Which of two versions the model has written is not known.
    let pieces = piece("{\"q\":\"y\"}");
    let error = streamed([
        added(&brief),
        pieces,
        ended(&call("{\"q\":\"x\"}")),
        completed(),
    ])
    .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.message().contains("a call of `look`"), "{error}");
}

/// As from a gateway that numbers nothing and has new ids in each event.
#[tokio::test]
async fn the_end_of_a_text_whose_pieces_had_other_ids_is_no_second_text() {
    let piece = |id: &str, text: &str| json!({ "type": "response.output_text.delta", "item_id": id, "delta": text });
    let end = json!({ "type": "response.output_text.done", "item_id": "c", "text": "ab" });
    let response = streamed([piece("a", "a"), piece("b", "b"), end, completed()]).await;
    assert_eq!(response.unwrap().text(), "ab");
}

/// The pieces do not say where they belong, and the item or the last event says all again.
#[tokio::test]
async fn streamed_text_is_not_repeated() {
    let word = |text: &str| json!({ "type": "response.output_text.delta", "delta": text });
    let content = json!([{ "type": "output_text", "text": "ab" }]);
    let item = json!({ "type": "message", "id": "msg_1", "content": content });
    let done = json!({ "type": "response.output_item.done", "item": item });
    let mut numbered = done.clone();
    numbered["output_index"] = 0.into();
    let last = json!({ "type": "response.completed", "response": { "output": [item] } });
    for events in [
        vec![word("a"), word("b"), done.clone(), completed()],
        vec![word("a"), word("b"), numbered, last.clone()],
        vec![word("a"), word("b"), done, last.clone()],
        vec![word("a"), word("b"), last],
    ] {
        let response = streamed(events.clone()).await.unwrap();
        assert_eq!(
            said(response.message()),
            [Said::Text("ab".into())],
            "{events:?}"
        );
        assert_eq!(sent_after(&response).await[0]["id"], "msg_1");
    }
}

#[tokio::test]
async fn items_that_arrive_at_the_same_time() {
    let thought = |text: &str| {
        json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0,
                "summary_index": 0, "delta": text })
    };
    let word = |text: &str| {
        json!({ "type": "response.output_text.delta", "output_index": 1, "content_index": 0,
                "delta": text })
    };
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "enc",
                            "summary": [{ "type": "summary_text", "text": "Hmm" }] });
    let done = json!({ "type": "response.output_item.done", "output_index": 0, "item": reasoning });
    let events = [
        thought("H"),
        word("a"),
        thought("mm"),
        word("b"),
        done,
        completed(),
    ];
    let response = streamed(events).await.unwrap();
    let texts: Vec<_> = said(response.message());
    let (thought, text) = (
        |text: &str| Said::Reasoning(text.into()),
        |text: &str| Said::Text(text.into()),
    );
    assert_eq!(texts, [thought("H"), text("a"), thought("mm"), text("b")]);
    let sent = sent_after(&response).await;
    let kinds: Vec<_> = sent
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["reasoning", "message", "message"],
        "the item goes back once"
    );
}

#[tokio::test]
async fn call_ids_that_are_missing_or_repeated() {
    let call = |call_id: Value, name: &str| {
        json!({ "type": "function_call", "id": "fc_1", "call_id": call_id, "name": name,
                "arguments": "{}" })
    };
    let items = json!([
        call(Value::Null, "a"),
        call(json!("c"), "b"),
        call(json!("c"), "d")
    ]);
    let response = answered(output(items)).await.unwrap();
    let ids: Vec<_> = response
        .message()
        .tool_calls()
        .map(|call| &*call.id)
        .collect();
    assert_eq!(ids[..2], ["fc_1", "c"]);
    assert!(!ids[..2].contains(&ids[2]), "{ids:?}");
    let nameless = answered(output(json!([call(json!("c"), "")])))
        .await
        .unwrap_err();
    assert_eq!(nameless.kind(), ErrorKind::Protocol);
    assert!(nameless.message().contains("without a name"), "{nameless}");
}

#[tokio::test]
async fn summaries_stream_with_a_line_between_them() {
    let piece = |summary: u32, text: &str| {
        json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0,
                "summary_index": summary, "delta": text })
    };
    let events = [
        piece(0, "Fir"),
        piece(0, "st."),
        piece(1, "Then."),
        completed(),
    ];
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    let server = Server::start([chunked(events)]).await;
    let (response, events) = stream(model(&server), ModelRequest::default()).await;
    let expected = [Said::Reasoning("First.\n\nThen.".into())];
    assert_eq!(said(response.unwrap().message()), expected);
    assert_eq!(deltas(events).len(), 4);
}

#[tokio::test]
async fn why_a_response_is_not_complete() {
    let response = |more: Value| {
        let mut response = json!({ "status": "incomplete", "output": [] });
        response
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        response
    };
    for (reason, expected) in [
        (
            json!({ "reason": "max_output_tokens" }),
            FinishReason::Length,
        ),
        (
            json!({ "reason": "pause" }),
            FinishReason::Other("pause".into()),
        ),
        (Value::Null, FinishReason::Length),
    ] {
        let body = response(json!({ "incomplete_details": reason }));
        let plain = answered(reply(200, &body)).await.unwrap();
        let event = json!({ "type": "response.incomplete", "response": body });
        for response in [plain, streamed([event]).await.unwrap()] {
            assert_eq!(response.finish_reason(), &expected, "{reason}");
        }
    }
    for status in ["queued", "in_progress"] {
        let error = answered(reply(200, &response(json!({ "status": status }))))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.message().contains(status), "{error}");
    }
}

#[tokio::test]
async fn a_response_that_failed_is_an_error() {
    for (code, kind) in [
        ("server_error", ErrorKind::Provider),
        ("rate_limit_exceeded", ErrorKind::RateLimited),
        ("invalid_prompt", ErrorKind::InvalidRequest),
        ("context_length_exceeded", ErrorKind::ContextLength),
    ] {
        let response = json!({ "id": "resp_1", "status": "failed", "output": [],
                               "error": { "code": code, "message": "Sorry." } });
        let event = json!({ "type": "response.failed", "response": response });
        let nested = json!({ "type": "error", "error": { "code": code, "message": "Sorry." } });
        let plain = answered(reply(200, &response)).await;
        for error in [plain, streamed([event]).await, streamed([nested]).await] {
            let error = error.unwrap_err();
            assert_eq!((error.kind(), error.message()), (kind, "Sorry."), "{code}");
        }
    }
    let done = json!({ "status": "failed", "output": [] });
    let done = streamed([json!({ "type": "response.done", "response": done })]).await;
    assert_eq!(done.unwrap_err().message(), "the response failed");
    let bare = json!({ "type": "response.failed", "response": {} });
    let error = streamed([bare]).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Provider, "the response failed")
    );
}

#[tokio::test]
async fn a_body_that_is_no_response_is_an_error() {
    for body in [
        "{}",
        "[]",
        "null",
        "{\"choices\":[]}",
        "{\"output\":\"text\"}",
        "hello",
        "",
    ] {
        let server = Server::start([crate::server::whole(200, &[], body)]).await;
        let error = call(model(&server), ModelRequest::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{body}: {error}");
    }
    for data in ["[DONE]", "hello"] {
        let server = Server::start([chunked([format!("data: {data}\n\n")])]).await;
        let error = stream(model(&server), ModelRequest::default())
            .await
            .0
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{data}");
        assert!(error.is_retryable(), "{data}: {error}");
    }
}

/// vercel/ai, `xai-x-search-tool`, and pydantic/pydantic-ai: searches run at once, and a list of
/// tools ends after the message.
#[tokio::test]
async fn items_stand_in_the_order_of_the_output_whenever_they_ended() {
    let search = |id: &str| json!({ "type": "x_search_call", "id": id });
    let message = json!({
        "type": "message", "id": "msg_1", "role": "assistant",
        "content": [{ "type": "output_text", "text": "Found." }],
    });
    let call = |id: &str, call_id: &str| json!({ "type": "function_call", "id": id, "call_id": call_id, "name": "look", "arguments": "{}" });
    let items = [
        search("one"),
        search("two"),
        message,
        call("fc_1", "a"),
        search("three"),
        call("fc_2", "b"),
    ];
    let done = [1, 2, 5, 4, 3, 0].map(|at: usize| {
        json!({ "type": "response.output_item.done", "output_index": at, "item": items[at] })
    });
    let response = streamed(done.into_iter().chain([completed()]))
        .await
        .unwrap();
    let sent = sent_after(&response).await;
    let ids: Vec<_> = sent
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    // Calls stand as the consumer has seen them, after all that was said before them.
    assert_eq!(ids, ["one", "two", "msg_1", "three", "fc_2", "fc_1"]);
}

#[tokio::test]
async fn log_probabilities_are_kept_and_not_sent_back() {
    let logprobs = json!([{ "token": "a", "logprob": -0.1 }]);
    let items = json!([{
        "type": "message", "role": "assistant",
        "content": [{ "type": "output_text", "text": "a", "logprobs": logprobs }],
    }]);
    let response = answered(output(items)).await.unwrap();
    let Part::Text(text) = &response.message().parts()[0] else {
        panic!("{response:?}");
    };
    assert_eq!(
        text.provider.get("openai_responses").unwrap()["logprobs"],
        logprobs
    );
    let sent = sent_after(&response).await;
    assert!(!json!(sent).to_string().contains("logprob"), "{sent:?}");
}
