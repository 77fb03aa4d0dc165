//! Plain answers.

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::stream::Delta;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role};

use crate::server::{Reply, Server, delta, events, finished, json as reply, whole};
use test_support::{arguments, begins, call, deltas, stream, text};

async fn answered(reply: Reply) -> Result<ModelResponse, Error> {
    let server = Server::start([reply]).await;
    call(server.model(), ModelRequest::default()).await
}

async fn read(body: Value) -> ModelResponse {
    answered(reply(200, &body)).await.unwrap()
}

/// Reasoning with the mark by which it is sent back.
pub fn thought(text: &str) -> Part {
    let mut part = Part::reasoning(text);
    if let Part::Reasoning(reasoning) = &mut part {
        reasoning.provider.set("openai", json!({}));
    }
    part
}

fn full() -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": "Hellö", "refusal": null, "annotations": [] },
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30,
            "prompt_tokens_details": { "cached_tokens": 5, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": 7 },
        },
    })
}

#[tokio::test]
async fn a_full_answer() {
    let headers = [
        ("content-type", "application/json; charset=utf-8"),
        ("x-request-id", "req_1"),
        ("X-RateLimit-Remaining-Requests", "99"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    let response = answered(whole(200, &headers, full().to_string()))
        .await
        .unwrap();
    assert_eq!(response.message(), &Message::assistant("Hellö"));
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    assert_eq!(response.attempt(), None);
    let usage = response.usage();
    assert_eq!((usage.input_tokens, usage.output_tokens), (20, 10));
    assert_eq!((usage.cached_input_tokens, usage.reasoning_tokens), (5, 7));
    let metadata = response.metadata();
    assert_eq!(metadata.status, Some(200));
    assert_eq!(metadata.request_id.as_deref(), Some("req_1"));
    assert_eq!(metadata.model.as_deref(), Some("gpt-4o-2024-08-06"));
    let expected = [
        ("x-ratelimit-remaining-requests".into(), "99".into()),
        ("x-ratelimit-reset-tokens".into(), "6m0s".into()),
    ];
    assert_eq!(metadata.rate_limits, expected.into());
}

#[tokio::test]
async fn the_body_names_the_request_if_no_header_does() {
    assert_eq!(
        read(full()).await.metadata().request_id.as_deref(),
        Some("chatcmpl-1")
    );
}

#[tokio::test]
async fn the_least_and_the_sloppiest_answers() {
    let least = read(json!({ "choices": [{ "message": { "content": "hi" } }] })).await;
    assert_eq!(
        least,
        read_sloppy(json!("hi"))
            .await
            .with_metadata(least.metadata().clone())
    );
    let parts = json!([{ "type": "text", "text": "h" }, { "type": "text", "text": "i" }, 7]);
    assert_eq!(read_sloppy(parts).await.message().text(), "hi");
    assert_eq!(read_sloppy(Value::Null).await.message().parts(), []);
}

async fn read_sloppy(content: Value) -> ModelResponse {
    read(json!({
        "id": 17, "model": null, "error": null, "object": {}, "usage": "none",
        "choices": [{
            "index": "zero", "finish_reason": null, "delta": null,
            "message": { "role": null, "content": content, "tool_calls": null, "refusal": null },
        }],
    }))
    .await
}

#[tokio::test]
async fn escaped_words_are_unescaped() {
    let body = r#"{
        "id": "chatcmpl\u002d1", "model": "org\/gpt",
        "choices": [{
            "finish_reason": "len\u0067th",
            "message": { "tool_calls": [
                { "id": "call\u005f1", "function": { "name": "a\u0064d", "arguments": "{}" } }
            ] }
        }]
    }"#;
    let response = answered(whole(200, &[], body)).await.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::Length);
    assert_eq!(
        response.metadata().request_id.as_deref(),
        Some("chatcmpl-1")
    );
    assert_eq!(response.metadata().model.as_deref(), Some("org/gpt"));
    let calls: Vec<_> = response
        .message()
        .tool_calls()
        .map(|call| (&*call.id, &*call.name))
        .collect();
    assert_eq!(calls, [("call_1", "add")]);
}

#[tokio::test]
async fn words_of_another_type_are_not_said() {
    for wrong in [
        json!(7),
        json!(-7),
        json!(0.5),
        json!(true),
        json!([1]),
        json!({ "a": [1] }),
    ] {
        let function = json!({ "name": "add", "arguments": "{}" });
        let message = json!({ "tool_calls": [{ "id": wrong, "function": function }] });
        let choice = json!({ "message": message, "finish_reason": wrong });
        let response = read(json!({ "id": wrong, "model": wrong, "choices": [choice] })).await;
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        assert_eq!(response.metadata().request_id, None);
        assert_eq!(response.metadata().model, None);
        let calls: Vec<_> = response
            .message()
            .tool_calls()
            .map(|call| &*call.id)
            .collect();
        assert_eq!(calls, ["call_0_0"]);
    }
}

#[tokio::test]
async fn usage_with_holes() {
    let usage = json!({
        "prompt_tokens": 3, "completion_tokens": null, "prompt_tokens_details": null,
        "completion_tokens_details": { "reasoning_tokens": -1 },
    });
    let body = json!({ "choices": [{ "message": { "content": "hi" } }], "usage": usage });
    let usage = read(body).await.usage();
    assert_eq!(
        (
            usage.input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens
        ),
        (3, 0, 0)
    );
}

#[tokio::test]
async fn every_finish_reason() {
    for (word, reason) in [
        ("stop", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("tool_calls", FinishReason::ToolCalls),
        ("function_call", FinishReason::ToolCalls),
        ("content_filter", FinishReason::ContentFilter),
        ("eos", FinishReason::Other("eos".into())),
    ] {
        let mut message = json!({ "content": "hi" });
        if reason == FinishReason::ToolCalls {
            message["tool_calls"] = calls();
        }
        let choice = json!({ "message": message, "finish_reason": word });
        let response = read(json!({ "choices": [choice] })).await;
        assert_eq!(response.finish_reason(), &reason);
    }
}

fn calls() -> Value {
    json!([
        { "id": "a", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } },
        { "id": "b", "type": "function", "function": { "name": "now", "arguments": "" } },
        { "id": "c", "index": 0, "function": { "name": "add", "arguments": { "a": 2 } } },
        { "id": "", "function": { "name": "add", "arguments": "{\"a\":" } },
        { "id": "a", "function": { "name": "now", "arguments": null } },
    ])
}

fn assert_calls(message: &Message) {
    let calls: Vec<_> = message
        .tool_calls()
        .map(|call| (&*call.id, &*call.name, call.arguments.value().clone()))
        .collect();
    let expected = [
        ("a", "add", json!({ "a": 1 })),
        ("b", "now", json!({})),
        ("c", "add", json!({ "a": 2 })),
        ("call_0_3", "add", json!("{\"a\":")),
        ("call_0_4", "now", json!({})),
    ];
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn parallel_tool_calls() {
    for reason in [json!("tool_calls"), json!("stop"), Value::Null] {
        let message = json!({ "content": null, "tool_calls": calls() });
        let choice = json!({ "message": message, "finish_reason": reason });
        let response = read(json!({ "choices": [choice] })).await;
        assert_calls(response.message());
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    }
}

#[tokio::test]
async fn thoughts_come_before_words() {
    let mut in_reasoning = Part::reasoning("hm");
    if let Part::Reasoning(reasoning) = &mut in_reasoning {
        let field = json!({ "reasoning_field": "reasoning" });
        reasoning.provider.set("openai", field);
    }
    for (fields, thought) in [
        (
            json!({ "reasoning_content": "hm", "content": "yes" }),
            thought("hm"),
        ),
        (json!({ "reasoning": "hm", "content": "yes" }), in_reasoning),
        (
            json!({ "reasoning": "hm", "reasoning_content": "hm", "content": "yes" }),
            thought("hm"),
        ),
    ] {
        let response = read(json!({ "choices": [{ "message": fields }] })).await;
        let expected = Message::new(Role::Assistant, [thought, Part::from_text("yes")]);
        assert_eq!(response.message(), &expected);
    }
}

#[tokio::test]
async fn a_refusal_is_text_with_a_reason() {
    let message = json!({ "content": null, "refusal": "I cannot." });
    let choice = json!({ "message": message, "finish_reason": "stop" });
    let response = read(json!({ "choices": [choice] })).await;
    assert_eq!(response.message().text(), "I cannot.");
    assert_eq!(response.finish_reason(), &FinishReason::Refusal);
}

#[tokio::test]
async fn fields_that_the_server_added_to_a_call_go_back() {
    let signature = json!({ "google": { "thought_signature": "EqQ" } });
    let function = json!({ "name": "add", "arguments": "{}" });
    let call_json =
        json!({ "id": "a", "type": "function", "function": function, "extra_content": signature });
    let body = json!({ "choices": [{ "message": { "tool_calls": [call_json] } }] });
    let server = Server::start([
        reply(200, &body),
        events(&[delta(json!({ "tool_calls": [call_json] }))]),
    ])
    .await;
    let plain = call(server.model(), ModelRequest::default()).await.unwrap();
    let request = ModelRequest::new([plain.message().clone()]);
    let (streamed, _) = stream(server.model(), request).await;
    assert_eq!(streamed.unwrap().message(), plain.message());
    assert_eq!(
        server.seen()[1].body["messages"][0]["tool_calls"][0],
        call_json
    );
}

#[tokio::test]
async fn a_plain_answer_to_a_streamed_call_is_sent_as_deltas() {
    let message = json!({ "reasoning": "hm", "content": "yes", "tool_calls": calls() });
    let body = json!({ "choices": [{ "message": message }], "usage": { "prompt_tokens": 3 } });
    let server = Server::start([reply(200, &body)]).await;
    let (response, chunks) = stream(server.model(), ModelRequest::default()).await;
    let response = response.unwrap();
    assert_eq!(server.only().body["stream"], true);
    assert_eq!(response.attempt(), Some(0));
    assert_eq!(response.usage().input_tokens, 3);
    assert_calls(response.message());
    let deltas = deltas(chunks);
    assert_eq!(
        deltas[..3],
        [
            Delta::Reasoning("hm".into()),
            text("yes"),
            begins(0, "a", "add")
        ]
    );
    assert_eq!(
        deltas[3..5],
        [arguments(0, "{\"a\":1}"), begins(1, "b", "now")]
    );
}

#[tokio::test]
async fn a_stream_in_answer_to_a_plain_call_is_read() {
    let chunks: Vec<_> = (0..100)
        .map(|i| delta(json!({ "content": i.to_string() })))
        .collect();
    let response = answered(events(&[&chunks[..], &[finished("length")]].concat()))
        .await
        .unwrap();
    let expected: String = (0..100).map(|i| i.to_string()).collect();
    assert_eq!(response.message().text(), expected);
    assert_eq!(response.finish_reason(), &FinishReason::Length);
    assert_eq!(response.attempt(), None);
}

#[tokio::test]
async fn only_the_first_choice_counts() {
    let choice = |index: u32, text: &str| json!({ "index": index, "message": { "content": text } });
    let response = read(json!({ "choices": [choice(1, "b"), choice(0, "a")] })).await;
    assert_eq!(response.message().text(), "a");
}

#[tokio::test]
async fn no_choices() {
    for body in [
        json!({}),
        json!({ "choices": [] }),
        json!({ "choices": null, "id": "x" }),
    ] {
        let error = answered(reply(200, &body)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert_eq!(error.message(), "the response has no choices");
        assert_eq!(error.metadata().status, Some(200));
    }
}

#[tokio::test]
async fn no_json() {
    let html = format!(
        "<html>\n  <body>Wröng place{}</body></html>",
        " x".repeat(1000)
    );
    for body in [
        html.as_bytes(),
        b"",
        b"7",
        b"\xff\xfe",
        b"{\"choices\":[",
        b"{\"choices\":7}",
    ] {
        let error = answered(whole(200, &[("content-type", "text/html")], body))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.message().chars().count() < 400, "{error}");
    }
    let error = answered(whole(200, &[], html)).await.unwrap_err();
    assert!(
        error.message().contains("<html> <body>Wröng place x x"),
        "{error}"
    );
}

#[tokio::test]
async fn a_page_in_answer_to_a_streamed_call() {
    let page = whole(200, &[("content-type", "text/html")], "<html>login</html>");
    let server = Server::start([page]).await;
    let (response, chunks) = stream(server.model(), ModelRequest::default()).await;
    let error = response.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.message().contains("<html>login</html>"), "{error}");
    assert!(chunks.is_empty());
}

#[tokio::test]
async fn a_usage_that_is_no_count_costs_no_answer() {
    let answer = |usage: serde_json::Value| {
        let message = serde_json::json!({ "role": "assistant", "content": "Hi." });
        let choices = serde_json::json!([{ "message": message, "finish_reason": "stop" }]);
        crate::server::json(
            200,
            &serde_json::json!({ "choices": choices, "usage": usage }),
        )
    };
    for wrong in ["-5", "1.5", "1e30", "-0.5"] {
        let number: serde_json::Value = serde_json::from_str(wrong).unwrap();
        let usage = serde_json::json!({ "prompt_tokens": number, "completion_tokens": 1 });
        let server = crate::server::Server::start([answer(usage)]).await;
        let response = test_support::call(server.model(), tower_agent::ModelRequest::default());
        let response = response.await.unwrap();
        assert_eq!(response.text(), "Hi.", "{wrong}");
        assert_eq!(response.usage(), tower_agent::Usage::new(0, 1), "{wrong}");
    }
    let usage = serde_json::json!({ "prompt_tokens": 12.0, "completion_tokens": null });
    let server = crate::server::Server::start([answer(usage)]).await;
    let response = test_support::call(server.model(), tower_agent::ModelRequest::default())
        .await
        .unwrap();
    assert_eq!(response.usage().input_tokens, 12);
}
