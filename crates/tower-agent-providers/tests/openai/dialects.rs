//! Servers that answer otherwise than OpenAI. Each fixture is cut down from a recorded answer,
//! whose origin stands beside it.

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::model::{FinishReason, ResponseFormat, ToolChoice};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, BoxError, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Settings,
    Tool, Usage,
};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_providers::openai::{
    Chat, Dialect, Dialects, OpenAi, ReasoningField, SchemaSupport,
};
use tower_agent_providers::protocol::{Call, Protocol};

use crate::answers::thought;
use crate::server::{Server, delta, events, finished, json as reply, unfinished};
use test_support::{call, deltas, stream, text};

async fn plain(body: Value) -> Result<ModelResponse, Error> {
    let server = Server::start([reply(200, &body)]).await;
    call(server.model(), ModelRequest::default()).await
}

async fn streamed(chunks: &[Value]) -> Result<ModelResponse, Error> {
    let server = Server::start([events(chunks)]).await;
    stream(server.model(), ModelRequest::default()).await.0
}

fn says(content: Value) -> Value {
    json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": content } }] })
}

fn thinks_and_says(reasoning: &str, answer: &str) -> Message {
    Message::new(
        Role::Assistant,
        [thought(reasoning), Part::from_text(answer)],
    )
}

/// 0xPlaygrounds/rig, `perplexity/`.
#[tokio::test]
async fn perplexity_sends_an_empty_delta_beside_the_message() {
    let choice = json!({
        "index": 0,
        "delta": { "role": "assistant", "content": "" },
        "message": { "role": "assistant", "content": "Paris." },
        "finish_reason": "stop",
    });
    let response = plain(json!({ "choices": [choice] })).await.unwrap();
    assert_eq!(response.message(), &Message::assistant("Paris."));
}

/// 0xPlaygrounds/rig, `perplexity/`.
#[tokio::test]
async fn perplexity_sends_the_message_so_far_beside_each_delta() {
    let chunk = |piece: &str, whole: &str| {
        json!({ "choices": [{
            "index": 0,
            "delta": { "role": "assistant", "content": piece },
            "message": { "role": "assistant", "content": whole },
            "finish_reason": null,
        }] })
    };
    let mut last = chunk("", "Paris.");
    last["choices"][0]["finish_reason"] = "stop".into();
    let server =
        Server::start([events(&[chunk("Par", "Par"), chunk("is.", "Paris."), last])]).await;
    let (response, told) = stream(server.model(), ModelRequest::default()).await;
    assert_eq!(response.unwrap().text(), "Paris.");
    assert_eq!(deltas(told), [text("Par"), text("is.")]);
}

/// pydantic/pydantic-ai, `test_mistral_model_thinking_part` and `.._iter`.
#[tokio::test]
async fn mistral_sends_its_thoughts_as_chunks_of_the_content() {
    let thinking = |thought: &str| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": thought }] });
    let said = json!({ "type": "text", "text": "Look both ways." });
    let expected = thinks_and_says("Okay, the user", "Look both ways.");

    let whole = says(json!([thinking("Okay, the user"), said]));
    assert_eq!(plain(whole).await.unwrap().message(), &expected);

    let chunks = [
        delta(json!({ "content": [thinking("Okay")] })),
        delta(json!({ "content": [thinking(", the user")] })),
        delta(json!({ "content": [{ "type": "text", "text": "Look " }] })),
        delta(json!({ "content": "both ways." })),
        finished("stop"),
    ];
    assert_eq!(streamed(&chunks).await.unwrap().message(), &expected);
}

#[tokio::test]
async fn a_thought_that_is_plain_text_and_parts_of_other_kinds() {
    let content = json!([
        { "type": "thinking", "thinking": "hm" },
        { "type": "reference", "reference_ids": [1] },
        "yes",
        { "type": "text", "text": "!" },
    ]);
    let response = plain(says(content)).await.unwrap();
    assert_eq!(response.message(), &thinks_and_says("hm", "yes!"));
}

#[tokio::test]
async fn usage_that_is_counted_in_other_ways() {
    let mut xai = Usage::new(12, 291);
    xai.reasoning_tokens = 290;
    let mut openai = Usage::new(12, 300);
    openai.reasoning_tokens = 290;
    let mut cached = Usage::new(100, 2);
    cached.cached_input_tokens = 64;
    for (usage, expected) in [
        // vercel/ai, `xai-*.json`: the completion leaves the reasoning out.
        (
            json!({
                "prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303,
                "completion_tokens_details": { "reasoning_tokens": 290 },
            }),
            xai,
        ),
        (
            json!({
                "prompt_tokens": 12, "completion_tokens": 300, "total_tokens": 312,
                "completion_tokens_details": { "reasoning_tokens": 290 },
            }),
            openai,
        ),
        // A server that says no total is taken at its word.
        (
            json!({
                "prompt_tokens": 12, "completion_tokens": 300,
                "completion_tokens_details": { "reasoning_tokens": 290 },
            }),
            openai,
        ),
        // pydantic/pydantic-ai, `test_tool_choice_matrix`: Mistral.
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 2, "num_cached_tokens": 64 }),
            cached,
        ),
        // pydantic/pydantic-ai, Moonshot.
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 2, "cached_tokens": 64 }),
            cached,
        ),
        // 0xPlaygrounds/rig, `deepseek/`.
        (
            json!({
                "prompt_tokens": 100, "completion_tokens": 2,
                "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36,
                "prompt_tokens_details": { "cached_tokens": 64 },
            }),
            cached,
        ),
    ] {
        let mut body = says(json!("ok"));
        body["usage"] = usage.clone();
        assert_eq!(plain(body).await.unwrap().usage(), expected, "{usage}");
        let mut last = finished("stop");
        last["usage"] = usage.clone();
        let chunks = [delta(json!({ "content": "ok" })), last];
        assert_eq!(
            streamed(&chunks).await.unwrap().usage(),
            expected,
            "{usage}"
        );
    }
}

#[tokio::test]
async fn a_stated_cost_is_in_the_metadata() {
    for (usage, cost) in [
        // pydantic/pydantic-ai, `test_eager_input_streaming_sent_to_openrouter`.
        (
            json!({ "cost": 0.00183, "cost_details": {} }),
            Some(0.00183),
        ),
        // vercel/ai, `xai-*.json`.
        (json!({ "cost_in_usd_ticks": 15_800_000 }), Some(0.00158)),
        // 0xPlaygrounds/rig, `perplexity/`.
        (
            json!({ "cost": { "input_tokens_cost": 0.0, "total_cost": 0.005 } }),
            Some(0.005),
        ),
        (json!({ "cost": "much", "cost_in_usd_ticks": null }), None),
        (json!({}), None),
    ] {
        let mut body = says(json!("ok"));
        body["usage"] = usage.clone();
        assert_eq!(plain(body).await.unwrap().metadata().cost, cost, "{usage}");
        let last = json!({ "choices": [], "usage": usage });
        let chunks = [delta(json!({ "content": "ok" })), finished("stop"), last];
        let response = streamed(&chunks).await.unwrap();
        assert_eq!(response.metadata().cost, cost);
        let saved = serde_json::to_value(&response).unwrap();
        let read: ModelResponse = serde_json::from_value(saved).unwrap();
        assert_eq!(read.metadata(), response.metadata());
    }
}

/// OpenRouterTeam/openrouter-examples#67.
#[tokio::test]
async fn an_answer_that_ended_with_an_error_is_none() {
    let mut whole = says(json!(""));
    whole["choices"][0]["finish_reason"] = "error".into();
    for result in [
        plain(whole).await,
        streamed(&[delta(json!({ "content": "Hel" })), finished("error")]).await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider);
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn mistral_names_the_limit_of_the_model() {
    let mut whole = says(json!("Hel"));
    whole["choices"][0]["finish_reason"] = "model_length".into();
    let response = plain(whole).await.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::Length);
}

/// pydantic/pydantic-ai, `test_openrouter_errors_raised`.
#[tokio::test]
async fn openrouter_wraps_the_reason_of_the_server_behind_it() {
    let wrapped = |raw: Value| {
        json!({ "error": {
            "code": 429,
            "message": "Provider returned error",
            "metadata": { "provider_name": "Google", "raw": raw },
        } })
    };
    for (raw, message) in [
        (
            json!("rate-limited upstream"),
            "Provider returned error: Google: rate-limited upstream",
        ),
        (
            json!("{\"error\":{\"message\":\"quota\",\"code\":8}}"),
            "Provider returned error: Google: quota",
        ),
        (
            json!({ "error": { "message": "quota" } }),
            "Provider returned error: Google: quota",
        ),
        (Value::Null, "Provider returned error"),
    ] {
        let server = Server::start([reply(429, &wrapped(raw))]).await;
        let error = call(server.model(), ModelRequest::default())
            .await
            .unwrap_err();
        assert_eq!(error.message(), message);
        assert_eq!(error.kind(), ErrorKind::RateLimited);
    }
    // In a stream, after the first words.
    let mut chunk = wrapped(json!("rate-limited upstream"));
    chunk["choices"] =
        json!([{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }]);
    let error = streamed(&[delta(json!({ "content": "Hel" })), chunk])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(
        error.message(),
        "Provider returned error: Google: rate-limited upstream"
    );
}

/// A prompt that is too long for the server behind a gateway is known by that server's words.
#[tokio::test]
async fn the_reason_behind_a_gateway_decides_the_kind() {
    let raw = "{\"message\":\"This model's maximum context length is 8192 tokens.\"}";
    let error = json!({ "error": {
        "code": 400,
        "message": "Provider returned error",
        "metadata": { "raw": raw },
    } });
    let server = Server::start([reply(400, &error)]).await;
    let error = call(server.model(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextLength);
}

#[tokio::test]
async fn a_stream_cut_before_its_end_is_an_error_with_thoughts_as_well() {
    let thinking = json!({ "content": [{ "type": "thinking", "thinking": "hm" }] });
    let chunk = crate::server::event(&delta(thinking));
    let server = Server::start([unfinished([chunk])]).await;
    let (response, _) = stream(server.model(), ModelRequest::default()).await;
    assert!(response.is_err());
}

/// Where servers put the usage, and the names that they have for it.
#[tokio::test]
async fn usage_that_stands_in_an_odd_place() {
    let usage = json!({ "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30 });
    let message = json!({ "role": "assistant", "content": "yes" });
    let body = |beside: Value, choice: Value| {
        let mut body = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] });
        let body_fields = body.as_object_mut().unwrap();
        body_fields.extend(beside.as_object().unwrap().clone());
        let choice_fields = body["choices"][0].as_object_mut().unwrap();
        choice_fields.extend(choice.as_object().unwrap().clone());
        body
    };
    let renamed = json!({ "input_tokens": 20, "output_tokens": 10 });
    let timings = json!({ "prompt_n": 15, "cache_n": 5, "predicted_n": 10, "predicted_ms": 3.5 });
    for (body, cached) in [
        (body(json!({}), json!({ "usage": usage })), 0),
        (body(json!({ "usage": renamed }), json!({})), 0),
        (body(json!({ "x_groq": { "usage": usage } }), json!({})), 0),
        (body(json!({ "timings": timings }), json!({})), 5),
    ] {
        let server = Server::start([reply(200, &body)]).await;
        let response = call(server.model(), ModelRequest::default()).await.unwrap();
        let mut expected = Usage::new(20, 10);
        expected.cached_input_tokens = cached;
        assert_eq!(response.usage(), expected, "{body}");
    }
}

/// A prompt that the cache had is counted once, whether it is a part of the prompt or stands
/// beside.
#[tokio::test]
async fn a_cached_prompt_is_counted_once() {
    for (usage, input) in [
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
                 "prompt_tokens_details": { "cached_tokens": 80 } }),
            100,
        ),
        (
            json!({ "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 110,
                 "prompt_tokens_details": { "cached_tokens": 80 } }),
            100,
        ),
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 190,
                 "cache_read_input_tokens": 80 }),
            180,
        ),
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 80 }),
            100,
        ),
        (
            json!({ "prompt_tokens": 20, "completion_tokens": 10, "cached_tokens": 80 }),
            100,
        ),
    ] {
        let message = json!({ "role": "assistant", "content": "yes" });
        let body =
            json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": usage });
        let server = Server::start([reply(200, &body)]).await;
        let response = call(server.model(), ModelRequest::default()).await.unwrap();
        assert_eq!(response.usage().input_tokens, input, "{usage}");
        assert_eq!(response.usage().cached_input_tokens, 80, "{usage}");
    }
}

/// Returns the body of a call to this host.
fn body(host: &str, model: &str, request: &ModelRequest) -> Result<Value, Error> {
    let mut body = Vec::new();
    let call = Call::new(request).with_host(host).with_model(model);
    Chat::default().encode(&call, &mut body)?;
    Ok(serde_json::from_slice(&body).unwrap())
}

/// What schemars derives of options, lists and references, for a server that knows OpenAPI alone.
#[test]
fn schemas_for_googles_endpoint() {
    let parameters = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "name": { "type": ["string", "null"], "description": "A name." },
            "either": { "type": ["string", "integer", "null"] },
            "tags": { "type": "array" },
            "words": { "type": ["array", "null"], "items": { "type": ["string", "null"] } },
            "filter": { "anyOf": [{ "$ref": "#/$defs/Filter" }, { "type": "null" }], "description": "Which." },
            "shape": { "oneOf": [{ "const": "round" }, { "type": "object", "properties": { "n": { "type": "array", "items": {} } } }] },
            "tree": { "$ref": "#/$defs/Tree" },
            "any": true,
        },
        "required": ["tags"],
        "$defs": {
            "Filter": { "type": "object", "properties": { "before": { "type": ["integer", "null"] } } },
            "Tree": { "type": "object", "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/Tree" } } } },
        },
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "nullable": true, "description": "A name." },
            "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }], "nullable": true },
            "tags": { "type": "array", "items": { "type": "string" } },
            "words": { "type": "array", "nullable": true, "items": { "type": "string", "nullable": true } },
            "filter": { "type": "object", "nullable": true, "description": "Which.",
                        "properties": { "before": { "type": "integer", "nullable": true } } },
            "shape": { "anyOf": [{ "enum": ["round"] }, { "type": "object", "properties": {
                "n": { "type": "array", "items": { "type": "string" } } } }] },
            "tree": { "type": "object", "properties": { "children": { "type": "array", "items": { "type": "object" } } } },
            "any": {},
        },
        "required": ["tags"],
    });
    let tool = ToolDeclaration::new("look", "Looks.").with_parameters(parameters.clone());
    let mut request = ModelRequest::new([Message::user("?")]);
    request.tools_mut().push(Arc::new(tool));
    request.settings_mut().response_format = Some(ResponseFormat::JsonSchema {
        name: "answer".into(),
        schema: parameters.clone(),
        strict: true,
    });
    for (host, expected) in [
        ("generativelanguage.googleapis.com", &expected),
        ("europe-west4-aiplatform.googleapis.com", &expected),
        ("api.openai.com", &parameters),
    ] {
        let body = body(host, "gemini-2.5-flash", &request).unwrap();
        assert_eq!(
            &body["tools"][0]["function"]["parameters"], expected,
            "{host}"
        );
        assert_eq!(
            &body["response_format"]["json_schema"]["schema"], expected,
            "{host}"
        );
    }
}

/// A turn in which the model thought and called a tool, with its result.
fn tool_run(call: ToolCall) -> [Message; 3] {
    let result = ToolResult::new(&call, [Part::from_text("sunny")]);
    [
        Message::user("How is the weather?"),
        Message::new(
            Role::Assistant,
            [thought("I must look."), Part::ToolCall(call)],
        ),
        Message::new(Role::Tool, [Part::ToolResult(result)]),
    ]
}

fn weather_call() -> ToolCall {
    ToolCall::new("call_1", "weather", json!({ "city": "Oslo" }))
}

#[test]
fn reasoning_goes_back_as_the_host_takes_it() {
    let request = ModelRequest::new(tool_run(weather_call()));
    for (host, model, field) in [
        ("127.0.0.1", "qwen3", Some("reasoning_content")),
        (
            "api.deepseek.com",
            "deepseek-v4-pro",
            Some("reasoning_content"),
        ),
        ("api.moonshot.ai", "kimi-k2.5", Some("reasoning_content")),
        ("api.z.ai", "glm-4.7", Some("reasoning_content")),
        ("open.bigmodel.cn", "glm-4.7", Some("reasoning_content")),
        (
            "api.fireworks.ai",
            "accounts/fireworks/models/kimi-k2p5",
            Some("reasoning_content"),
        ),
        ("api.x.ai", "grok-4", Some("reasoning_content")),
        ("api.cerebras.ai", "gpt-oss-120b", Some("reasoning")),
        ("api.together.xyz", "zai-org/GLM-4.7", Some("reasoning")),
        ("openrouter.ai", "deepseek/deepseek-v4", Some("reasoning")),
        (
            "me.snowflakecomputing.com",
            "claude-sonnet-4-6",
            Some("reasoning"),
        ),
        ("api.openai.com", "gpt-5", None),
        ("me.openai.azure.com", "mine", None),
        ("me.services.ai.azure.com", "DeepSeek-R1", None),
        ("api.groq.com", "qwen/qwen3-32b", None),
        ("api.perplexity.ai", "sonar", None),
        ("router.huggingface.co", "openai/gpt-oss-120b", None),
        ("models.github.ai", "openai/gpt-5", None),
        // A gateway that is not known, in front of OpenAI.
        ("llm.example.com", "openai/gpt-5-mini", None),
    ] {
        let sent = body(host, model, &request).unwrap();
        let message = &sent["messages"][1];
        for name in ["reasoning_content", "reasoning", "reasoning_details"] {
            let expected = if field == Some(name) {
                json!("I must look.")
            } else {
                Value::Null
            };
            assert_eq!(message[name], expected, "{host} {name}");
        }
        assert_eq!(message["content"], Value::Null, "{host}");
        assert_eq!(message["tool_calls"][0]["id"], "call_1");
    }
}

/// pydantic/pydantic-ai, `test_mistral_model_thinking_part`.
#[test]
fn reasoning_goes_back_to_mistral_in_the_content() {
    let mut messages = tool_run(weather_call());
    messages[1] = thinks_and_says("Okay", "Look.");
    let sent = body(
        "api.mistral.ai",
        "magistral-medium-latest",
        &ModelRequest::new(messages),
    );
    let expected = json!([
        { "type": "thinking", "thinking": [{ "type": "text", "text": "Okay" }] },
        { "type": "text", "text": "Look." },
    ]);
    assert_eq!(sent.unwrap()["messages"][1]["content"], expected);
}

#[test]
fn reasoning_of_another_provider_is_not_sent() {
    let mut signed = Part::reasoning("hm");
    if let Part::Reasoning(reasoning) = &mut signed {
        reasoning
            .provider
            .set("anthropic", json!({ "signature": "EqQ" }));
    }
    for part in [signed, Part::reasoning("hm")] {
        let message = Message::new(Role::Assistant, [part, Part::from_text("yes")]);
        let request = ModelRequest::new([Message::user("?"), message]);
        for host in [
            "localhost",
            "openrouter.ai",
            "api.mistral.ai",
            "api.cerebras.ai",
        ] {
            let sent = body(host, "any", &request).unwrap();
            let expected = json!({ "role": "assistant", "content": "yes" });
            assert_eq!(sent["messages"][1], expected, "{host}");
        }
    }
}

/// MoonshotAI/kimi-cli#2141, charmbracelet/crush#2696: one message without the field is an error.
#[test]
fn a_message_of_another_model_has_a_blank_where_reasoning_is_required() {
    let request = ModelRequest::new([
        Message::user("Hello."),
        Message::assistant("Hello."),
        Message::user("How are you?"),
    ]);
    for (host, expected) in [
        ("api.deepseek.com", json!(" ")),
        ("api.moonshot.cn", json!(" ")),
        ("api.z.ai", Value::Null),
    ] {
        let sent = body(host, "any", &request).unwrap();
        assert_eq!(sent["messages"][1]["reasoning_content"], expected, "{host}");
        assert_eq!(sent["messages"][0]["reasoning_content"], Value::Null);
    }
}

/// 0xPlaygrounds/rig, `deepseek/streaming_tools`.
#[test]
fn a_request_that_turns_thinking_off_has_no_blank() {
    let mut settings = Settings::default();
    let off = json!({ "type": "disabled" });
    settings.extra.insert("thinking".into(), off);
    let request = ModelRequest::new([
        Message::user("Hello."),
        Message::assistant("Hello."),
        Message::user("How are you?"),
    ]);
    let sent = body(
        "api.deepseek.com",
        "deepseek-v4-flash",
        &request.with_settings(settings),
    );
    let expected = json!({ "role": "assistant", "content": "Hello." });
    assert_eq!(sent.unwrap()["messages"][1], expected);
}

/// 0xPlaygrounds/rig, `deepseek/`, a tool run: the second request is the one that was accepted.
#[tokio::test]
async fn deepseek_gets_its_reasoning_back_in_a_tool_run() {
    let function = json!({ "name": "weather", "arguments": "{\"city\": \"Oslo\"}" });
    let call = json!({ "index": 0, "id": "call_00_x", "type": "function", "function": function });
    let first = events(&[
        delta(json!({ "role": "assistant", "content": null, "reasoning_content": "I must " })),
        delta(json!({ "content": null, "reasoning_content": "look." })),
        delta(json!({ "tool_calls": [call] })),
        finished("tool_calls"),
    ]);
    let server = Server::start([
        first,
        events(&[delta(json!({ "content": "Sunny." })), finished("stop")]),
    ])
    .await;
    let model = server
        .builder()
        .dialects(Dialects::new().find("api.deepseek.com", None))
        .build()
        .unwrap();
    let weather = Tool::function("weather", "Tells the weather.", |_: Value| "sunny");
    let agent = Agent::builder(model).tool(weather).build().unwrap();
    let run = agent.stream("How is the weather?");
    assert_eq!(run.response().await.unwrap().text(), "Sunny.");

    let again = &server.seen()[1].body["messages"];
    let function = json!({ "name": "weather", "arguments": "{\"city\": \"Oslo\"}" });
    let expected = json!([
        { "role": "user", "content": "How is the weather?" },
        {
            "role": "assistant",
            "content": null,
            "reasoning_content": "I must look.",
            "tool_calls": [{ "id": "call_00_x", "type": "function", "function": function }],
        },
        { "role": "tool", "tool_call_id": "call_00_x", "content": "sunny" },
    ]);
    assert_eq!(again, &expected);
}

/// pydantic/pydantic-ai, `test_openrouter_preserve_reasoning_block` and
/// `test_snowflake_thinking_..`.
#[tokio::test]
async fn reasoning_details_go_back_as_they_came() {
    let details = json!([
        {
            "type": "reasoning.text", "text": "15 * 27 = 405", "signature": "EqQ",
            "format": "anthropic-claude-v1", "index": 0, "id": null,
        },
        { "type": "reasoning.encrypted", "data": "gAA", "format": "openai-responses-v1", "index": 0 },
        { "type": "reasoning.encrypted", "data": "gBB", "format": "openai-responses-v1", "index": 0 },
    ]);
    let piece = |text: &str| {
        json!({
            "type": "reasoning.text", "text": text, "signature": null,
            "format": "anthropic-claude-v1", "index": 0, "id": null,
        })
    };
    let signed = json!({
        "type": "reasoning.text", "signature": "EqQ", "format": "anthropic-claude-v1", "index": 0,
    });
    let chunks = [
        delta(json!({ "content": "", "reasoning_details": [piece("15 * 27")] })),
        delta(json!({ "content": "", "reasoning_details": [piece(" = 405")] })),
        delta(json!({ "content": "", "reasoning_details": [signed, details[1]] })),
        delta(json!({ "content": "405.", "reasoning_details": [details[2]] })),
        delta(json!({ "content": "", "reasoning_details": [] })),
        finished("stop"),
    ];
    let whole = json!({ "choices": [{ "message": {
        "role": "assistant", "content": "405.", "reasoning": "15 * 27 = 405",
        "reasoning_details": details,
    } }] });
    for response in [streamed(&chunks).await, plain(whole).await] {
        let message = response.unwrap().message().clone();
        assert_eq!(message.text(), "405.");
        assert!(
            matches!(&message.parts()[0], Part::Reasoning(part) if part.text == "15 * 27 = 405")
        );

        let request = ModelRequest::new([Message::user("15 * 27?"), message]);
        let sent = |host: &str| body(host, "any", &request).unwrap()["messages"][1].clone();
        for host in ["openrouter.ai", "me.snowflakecomputing.com"] {
            let expected =
                json!({ "role": "assistant", "content": "405.", "reasoning_details": details });
            assert_eq!(sent(host), expected, "{host}");
        }
        // Another host, to which the conversation moved, would reject them.
        let expected = json!({ "role": "assistant", "content": "405." });
        assert_eq!(sent("api.openai.com"), expected);
    }
}

/// Gemini's reasoning is encrypted, and comes with the calls or after them.
#[tokio::test]
async fn encrypted_details_that_come_late_stay_in_their_order() {
    let detail = |data: &str| json!({ "type": "reasoning.encrypted", "data": data, "format": "google-gemini-v1", "index": 0 });
    let function = json!({ "name": "weather", "arguments": "{}" });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    let response = streamed(&[
        delta(json!({ "content": "", "reasoning_details": [detail("first")] })),
        delta(json!({ "content": "I look." })),
        delta(json!({ "tool_calls": [call], "reasoning_details": [detail("second")] })),
        delta(json!({ "reasoning_details": [detail("third")] })),
        finished("tool_calls"),
    ])
    .await
    .unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    let request = ModelRequest::new([Message::user("?"), response.message().clone()]);
    let sent = body("openrouter.ai", "google/gemini-3-pro", &request).unwrap();
    let function = json!({ "name": "weather", "arguments": "{}" });
    let expected = json!({
        "role": "assistant",
        "content": "I look.",
        "reasoning_details": [detail("first"), detail("second"), detail("third")],
        "tool_calls": [{ "id": "call_1", "type": "function", "function": function }],
    });
    assert_eq!(sent["messages"][1], expected);
}

/// A guard that hides a secret in the text of reasoning does not leave it in its details.
#[tokio::test]
async fn a_secret_that_is_hidden_in_reasoning_is_not_sent_in_its_details() {
    let secret = "I mail ann@example.com.";
    let detail = json!({ "type": "reasoning.text", "text": secret, "index": 0 });
    let function = json!({ "name": "weather", "arguments": "{}" });
    let call = json!({ "id": "call_1", "type": "function", "function": function });
    let thinks = json!({ "choices": [{ "message": {
        "role": "assistant", "content": null, "reasoning": secret,
        "reasoning_details": [detail], "tool_calls": [call],
    } }] });
    let server = Server::start([reply(200, &thinks), reply(200, &says(json!("Sunny.")))]).await;
    let mut dialect = Dialect::default();
    dialect.reasoning = ReasoningField::ReasoningDetails;
    let model = server.builder().dialects(dialect).build().unwrap();
    let weather = Tool::function("weather", "Tells the weather.", |_: Value| "sunny");
    let redact = Redact::new([Detector::email()]).unwrap();
    let agent = Agent::builder(model)
        .tool(weather)
        .global_callbacks(redact)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let again = &server.seen()[1].text;
    assert!(!again.contains("ann@example.com"), "{again}");
}

/// A conversation that goes from one host to another in one run, such as by a fallback, has a form
/// for each.
#[tokio::test]
async fn two_hosts_in_one_run_each_get_their_own_form() {
    let function = json!({ "name": "weather", "arguments": "{}" });
    let call = json!({ "id": "call_1", "type": "function", "function": function });
    let thinks = json!({ "choices": [{ "message": {
        "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call],
    } }] });
    let server = Server::start([
        reply(200, &thinks),
        reply(503, &json!({ "error": { "message": "Busy." } })),
        reply(200, &says(json!("Sunny."))),
    ])
    .await;
    let model = |reasoning| {
        let mut dialect = Dialect::default();
        dialect.reasoning = reasoning;
        server.builder().dialects(dialect).build().unwrap()
    };
    let first = model(ReasoningField::ReasoningContent);
    let second = model(ReasoningField::None);
    let model = tower_agent_middleware::fallback::Fallback::new(first).or(second);
    let weather = Tool::function("weather", "Tells the weather.", |_: Value| "sunny");
    let agent = Agent::builder(model).tool(weather).build().unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "Sunny.");
    let sent =
        |number: usize| server.seen()[number].body["messages"][1]["reasoning_content"].clone();
    assert_eq!(sent(1), "hm");
    assert_eq!(sent(2), Value::Null);
}

/// By which a budget finds the price of a bare name, such as that of a model that many hosts serve.
#[tokio::test]
async fn a_response_says_which_provider_was_asked() {
    for (base_url, provider) in [
        ("https://api.groq.com/openai/v1", Some("groq")),
        ("https://api.openai.com/v1", Some("openai")),
        ("https://me.openai.azure.com/openai/v1", Some("azure")),
        ("https://openrouter.ai/api/v1", Some("openrouter")),
        ("https://api.together.xyz/v1", Some("together_ai")),
        (
            "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
            Some("bedrock"),
        ),
        (
            "https://europe-west4-aiplatform.googleapis.com/v1/p",
            Some("vertex_ai"),
        ),
        (
            "https://aiplatform.eu.rep.googleapis.com/v1/p",
            Some("vertex_ai"),
        ),
        ("https://s3.eu-west-1.amazonaws.com/v1", None),
        ("http://localhost:11434/v1", None),
        ("https://notgroq.com/v1", None),
    ] {
        let answer = says(json!("ok")).to_string();
        let client = service_fn(move |_| {
            let body = Full::new(Bytes::from(answer.clone()));
            ready(Ok::<_, BoxError>(Response::new(body)))
        });
        let builder = OpenAi::builder().base_url(base_url).api_key("").model("a");
        let model = builder.build_with(client).unwrap();
        let response = call(model, ModelRequest::default()).await.unwrap();
        assert_eq!(
            response.metadata().provider.as_deref(),
            provider,
            "{base_url}"
        );
    }
}

#[test]
fn the_limit_of_tokens_is_named_as_the_host_takes_it() {
    let mut settings = Settings::default();
    settings.max_tokens = Some(100);
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    let new = "max_completion_tokens";
    let old = "max_tokens";
    for (host, model, name) in [
        ("api.openai.com", "gpt-4o", new),
        ("me.openai.azure.com", "mine", new),
        ("me.services.ai.azure.com", "mine", new),
        ("ME.CognitiveServices.Azure.com", "mine", new),
        ("me.services.ai.azure.com", "Mistral-Large-3", old),
        ("models.github.ai", "openai/gpt-5", new),
        ("api.cerebras.ai", "gpt-oss-120b", new),
        ("localhost", "gpt-oss:20b", old),
        ("localhost", "openai/o3-mini", new),
        ("openrouter.ai", "openai/gpt-5", old),
        ("notopenai.com", "any", old),
    ] {
        let sent = body(host, model, &request).unwrap();
        assert_eq!(sent[name], 100, "{host} {model}");
        let other = if name == new { old } else { new };
        assert_eq!(sent[other], Value::Null, "{host} {model}");
    }
}

fn with_schema(tools: bool) -> ModelRequest {
    let schema = json!({ "type": "object", "properties": { "celsius": { "type": "number" } } });
    let mut settings = Settings::default();
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "weather".into(),
        schema,
        strict: true,
    });
    let mut request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    request.add_instructions("Be brief.");
    if tools {
        let tool = ToolDeclaration::new("weather", "Tells the weather.");
        request.tools_mut().push(tool.into());
    }
    request
}

#[test]
fn a_schema_stands_in_the_instructions_where_it_is_not_accepted() {
    for (host, model, tools, format) in [
        ("api.openai.com", "gpt-5", true, json!("json_schema")),
        ("localhost", "qwen3", true, json!("json_schema")),
        (
            "api.deepseek.com",
            "deepseek-v4-pro",
            false,
            json!("json_object"),
        ),
        ("api.deepseek.com", "deepseek-v4-pro", true, Value::Null),
        ("api.z.ai", "glm-4.7", false, json!("json_object")),
        (
            "api.groq.com",
            "openai/gpt-oss-20b",
            false,
            json!("json_schema"),
        ),
    ] {
        let sent = body(host, model, &with_schema(tools)).unwrap();
        let case = format!("{host} {tools}");
        assert_eq!(sent["response_format"]["type"], format, "{case}");
        let system = sent["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("Be brief."), "{case}");
        assert_eq!(
            system.contains("celsius"),
            format != "json_schema",
            "{case}"
        );
        // Some servers demand the word.
        assert_eq!(system.contains("JSON"), format != "json_schema", "{case}");
    }
}

#[test]
fn a_tool_gives_the_answer_where_a_call_can_be_forced() {
    for (model, tools) in [
        ("openai/gpt-oss-20b", true),
        ("llama-3.1-8b-instant", true),
        ("llama-3.1-8b-instant", false),
    ] {
        let sent = body("api.groq.com", model, &with_schema(tools)).unwrap();
        assert_eq!(sent.get("response_format"), None);
        assert_eq!(sent["tool_choice"], "required");
        let functions = sent["tools"].as_array().unwrap();
        let last = &functions.last().unwrap()["function"];
        assert_eq!(functions.len(), 1 + usize::from(tools));
        assert_eq!(last["name"], ResponseFormat::ANSWER_TOOL);
        assert_eq!(
            last["parameters"]["properties"]["celsius"]["type"],
            "number"
        );
        assert_eq!(sent["messages"][0]["content"], "Be brief.");
    }
}

#[tokio::test]
async fn a_typed_run_works_where_no_schema_is_accepted() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Weather {
        celsius: f64,
    }
    let server = Server::start([
        reply(200, &says(json!("It is warm."))),
        reply(200, &says(json!("{\"celsius\": 21}"))),
    ])
    .await;
    let mut dialect = Dialect::default();
    dialect.schemas = SchemaSupport::Never;
    dialect.forced_tool_choice = false;
    let model = server.builder().dialects(dialect).build().unwrap();
    let agent = Agent::builder(model).build().unwrap();
    let response = agent.run_typed("How warm is it?").await.unwrap();
    let weather: Weather = response.into_value().unwrap();
    assert_eq!(weather.celsius, 21.0);
    for seen in server.seen() {
        assert_eq!(
            seen.body["response_format"],
            json!({ "type": "json_object" })
        );
        let system = seen.body["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains("celsius"), "{system}");
    }
}

/// 0xPlaygrounds/rig, `deepseek/wire_shape_matrix`: a forced choice is a 400.
#[test]
fn a_forced_tool_choice_is_an_error_where_it_is_not_accepted() {
    for (host, choice, is_sent) in [
        ("api.deepseek.com", ToolChoice::Required, false),
        (
            "api.deepseek.com",
            ToolChoice::Tool("weather".into()),
            false,
        ),
        ("api.deepseek.com", ToolChoice::Auto, true),
        ("api.deepseek.com", ToolChoice::None, true),
        ("api.openai.com", ToolChoice::Required, true),
    ] {
        let mut request = with_schema(true);
        request.settings_mut().tool_choice = Some(choice.clone());
        match body(host, "any", &request) {
            Ok(sent) => {
                assert!(is_sent, "{host} {choice:?}");
                assert!(!sent["tool_choice"].is_null());
            }
            Err(error) => {
                assert!(!is_sent, "{host} {choice:?}");
                assert_eq!(error.kind(), ErrorKind::InvalidRequest);
                assert!(error.message().contains("api.deepseek.com"));
            }
        }
    }
}

#[test]
fn a_rule_that_is_added_takes_precedence() {
    let mut first = Dialect::default();
    first.reasoning = ReasoningField::Reasoning;
    let mut second = Dialect::default();
    second.requires_reasoning = true;
    let dialects = Dialects::new()
        .for_host("deepseek.com", first)
        .for_model("DeepSeek", second);
    let find = |host: &str, model: &str| dialects.find(host, Some(model));
    // The last one first.
    assert_eq!(find("api.deepseek.com", "deepseek-v4"), second);
    assert_eq!(find("localhost", "deepseek-ai/deepseek-v4"), second);
    assert_eq!(find("api.deepseek.com", "another"), first);
    assert_eq!(dialects.find("api.deepseek.com", None), first);
    assert_eq!(find("notdeepseek.com", "another"), Dialect::default());
    assert_eq!(
        find("api.cerebras.ai", "another").reasoning,
        ReasoningField::Reasoning
    );
    assert_eq!(
        Dialects::from(second).find("api.openai.com", Some("gpt-5")),
        second
    );
}
