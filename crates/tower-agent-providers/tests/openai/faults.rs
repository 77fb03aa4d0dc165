//! Errors that servers send.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::{Error, ErrorKind, ModelRequest};

use crate::server::{Reply, Server, chunked, delta, event, json as reply, says, whole};
use test_support::{call, deltas, stream, text};

async fn failed(reply: Reply) -> Error {
    let server = Server::start([reply]).await;
    call(server.model(), ModelRequest::default())
        .await
        .unwrap_err()
}

fn fault(message: &str, kind: &str, code: Value) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

#[tokio::test]
async fn every_status() {
    for (status, kind, retryable) in [
        (301, ErrorKind::NotFound, false),
        (400, ErrorKind::InvalidRequest, false),
        (401, ErrorKind::Auth, false),
        (403, ErrorKind::Auth, false),
        (404, ErrorKind::NotFound, false),
        (408, ErrorKind::Timeout, true),
        (413, ErrorKind::InvalidRequest, false),
        (422, ErrorKind::InvalidRequest, false),
        (429, ErrorKind::RateLimited, true),
        (500, ErrorKind::Provider, true),
        (502, ErrorKind::Provider, true),
        (503, ErrorKind::Overloaded, true),
        (504, ErrorKind::Timeout, true),
        (529, ErrorKind::Overloaded, true),
    ] {
        let body = fault("It went wröng.", "some_error", Value::Null).to_string();
        let headers = [
            ("content-type", "application/json"),
            ("x-request-id", "req_1"),
            ("x-ratelimit-limit-requests", "60"),
        ];
        let error = failed(whole(status, &headers, body)).await;
        assert_eq!(error.kind(), kind, "{status}");
        assert_eq!(error.message(), "It went wröng.");
        assert_eq!(error.is_retryable(), retryable, "{status}");
        assert_eq!(error.metadata().status, Some(status));
        assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
        let limits = &error.metadata().rate_limits;
        assert_eq!(
            *limits,
            [("x-ratelimit-limit-requests".into(), "60".into())].into()
        );
        assert_eq!(error.retry_after(), None);
    }
}

#[tokio::test]
async fn a_streamed_call_fails_the_same() {
    let server = Server::start([reply(401, &fault("No.", "auth", Value::Null))]).await;
    let (response, chunks) = stream(server.model(), ModelRequest::default()).await;
    let error = response.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Auth, "No."));
    assert!(chunks.is_empty());
}

#[tokio::test]
async fn a_context_that_is_too_long() {
    let kind = "invalid_request_error";
    for body in [
        fault("Too much.", kind, json!("context_length_exceeded")),
        fault(
            "This model's maximum context length is 8192 tokens.",
            kind,
            Value::Null,
        ),
        fault(
            "Please reduce the length of the messages.",
            kind,
            Value::Null,
        ),
        fault(
            "the request exceeds the available context size",
            "exceed_context_size_error",
            json!(400),
        ),
        json!({ "object": "error", "message": "The prompt exceeds the context window.", "code": 400 }),
    ] {
        assert_eq!(
            failed(reply(400, &body)).await.kind(),
            ErrorKind::ContextLength,
            "{body}"
        );
        assert_eq!(
            failed(reply(422, &body)).await.kind(),
            ErrorKind::ContextLength,
            "{body}"
        );
    }
    let other = fault("max_tokens is too large: 9.", kind, json!("invalid_value"));
    assert_eq!(
        failed(reply(400, &other)).await.kind(),
        ErrorKind::InvalidRequest
    );
    let auth = fault("No context length for you.", kind, Value::Null);
    assert_eq!(failed(reply(401, &auth)).await.kind(), ErrorKind::Auth);
}

#[tokio::test]
async fn an_empty_account_is_not_tried_again() {
    let body = fault(
        "You exceeded your quota.",
        "insufficient_quota",
        json!("insufficient_quota"),
    );
    let error = failed(reply(429, &body)).await;
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(!error.is_retryable());
}

/// HunorLaczko/ha-groq-cloud-api#27, continuedev/continue#10161, pydantic/pydantic-ai (Mistral) and
/// openai/openai-openapi.
#[tokio::test]
async fn words_of_a_server_that_say_more_than_the_status() {
    let too_large = fault(
        "Request too large for model: Limit 6000, Requested 12328, please reduce your message size.",
        "tokens",
        json!("rate_limit_exceeded"),
    );
    let wrong_key = json!({
        "code": "Client specified an invalid argument",
        "error": "Incorrect API key provided: xa***zz.",
    });
    let unknown = fault(
        "No such model.",
        "invalid_request_error",
        json!("model_not_found"),
    );
    let invalid =
        json!({ "object": "error", "message": "Invalid model: x", "type": "invalid_model" });
    for (status, body, kind) in [
        (413, too_large, ErrorKind::InvalidRequest),
        (400, wrong_key, ErrorKind::Auth),
        (400, unknown.clone(), ErrorKind::NotFound),
        (422, unknown, ErrorKind::NotFound),
        (400, invalid, ErrorKind::NotFound),
    ] {
        let error = failed(reply(status, &body)).await;
        assert_eq!(error.kind(), kind, "{body}");
        assert!(!error.is_retryable(), "{body}");
    }
}

/// As providers word it, of whom most have no code for it.
#[tokio::test]
async fn a_prompt_that_is_too_long_in_every_wording() {
    for message in [
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "This model's maximum prompt length is 131072 but the request contains 137216 tokens.",
        "prompt token count of 150000 exceeds the limit of 128000",
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
        "Range of input length should be [1, 129024]",
        "Prompt exceeds max length",
        "too many tokens: total number of tokens in the prompt cannot exceed 128000",
        "Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
        "prompt too long; exceeded max context length by 12 tokens",
        "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 3000",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
        "Too many input tokens. Max input tokens: 300000, request input token count: 300100",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Prompt contains 140000 tokens, too large for model with 131072 maximum",
        "prompt is too long: 213462 tokens > 200000 maximum",
        "Your input exceeds the context window of this model.",
        "This model's maximum context length is 8192 tokens.",
        "Please reduce the length of the messages or completion.",
        "the request exceeds the available context size. try increasing the context size",
        "invalid params, context window exceeds limit",
        "Input is too long for requested model.",
    ] {
        let body = json!({ "error": { "message": message, "type": "invalid_request_error" } });
        let plain = failed(reply(400, &body)).await;
        // As a stream that had begun says it.
        let server = Server::start([chunked([event(&body)])]).await;
        let (streamed, _) = stream(server.model(), ModelRequest::default()).await;
        for error in [plain, streamed.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::ContextLength, "{message}");
            assert!(!error.is_retryable(), "{message}");
        }
    }
    for message in [
        "max_tokens is too large: 50000. This model supports at most 16384 completion tokens.",
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
        "Range of max_tokens should be [1, 8192]",
        "image exceeds 5 MB maximum",
        "Too many tokens in prompts, please wait before trying again.",
        "Request too large for model: Limit 6000 tokens per minute, prompt token count exceeds the limit",
    ] {
        let body = json!({ "error": { "message": message, "type": "invalid_request_error" } });
        let error = failed(reply(400, &body)).await;
        assert_ne!(error.kind(), ErrorKind::ContextLength, "{message}");
    }
}

/// The error with which Groq rejects a call of the model, by its tool's schema:
/// pydantic/pydantic-ai, `test_tool_use_failed_error` and `.._streaming`.
fn rejected(call: &str) -> Value {
    json!({ "error": {
        "message": "Tool call validation failed",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": call,
    } })
}

fn error_event(body: &Value) -> String {
    format!("event: error\ndata: {body}\n\n")
}

#[tokio::test]
async fn a_call_that_the_server_rejected_is_the_answer() {
    let one = r#"{"name": "look", "arguments": {"foo":  1}}"#;
    let two = r#" [{"name": "look", "parameters": {}}, {"name": "none", "arguments": "{}"}]"#;
    for (text, calls) in [
        (one, &[("look", r#"{"foo":  1}"#)][..]),
        (two, &[("look", "{}"), ("none", "{}")]),
    ] {
        let thought = event(&delta(json!({ "reasoning": "hm" })));
        let server = Server::start([
            reply(400, &rejected(text)),
            reply(400, &rejected(text)),
            chunked([thought, error_event(&rejected(text))]),
        ])
        .await;
        let plain = call(server.model(), ModelRequest::default()).await;
        let (refused, _) = stream(server.model(), ModelRequest::default()).await;
        let (streamed, _) = stream(server.model(), ModelRequest::default()).await;
        for response in [plain, refused, streamed] {
            let response = response.unwrap();
            let message = response.message();
            let found: Vec<_> = message
                .tool_calls()
                .map(|call| (&*call.name, call.arguments.as_str()))
                .collect();
            assert_eq!(found, calls);
            assert_eq!(*response.finish_reason(), FinishReason::ToolCalls);
            // A budget is not told that it cost nothing.
            assert!(response.metadata().is_cut);
        }
    }
}

#[tokio::test]
async fn the_model_is_told_what_is_wrong_with_a_call_that_the_server_rejected() {
    let text = r#"{"name": "look", "arguments": {"foo": 1}}"#;
    let server = Server::start([reply(400, &rejected(text)), says("I see.")]).await;
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Look {
        at: String,
    }
    let look = tower_agent::Tool::function("look", "Looks.", async |look: Look| look.at);
    let agent = tower_agent::Agent::builder(server.model())
        .tool(look)
        .build()
        .unwrap();
    assert_eq!(agent.run("Look!").await.unwrap().text(), "I see.");
    let messages = &server.seen()[1].body["messages"];
    assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], "look");
    let result = messages[2]["content"].as_str().unwrap();
    assert!(result.contains("field `at`: is missing"), "{result}");
}

#[tokio::test]
async fn a_rejected_call_that_cannot_be_read_may_be_tried_again() {
    for text in ["<function=look{\"foo\": 1}</function>", "{\"foo\": 1}}"] {
        let body = rejected(text);
        let plain = failed(reply(400, &body)).await;
        let server = Server::start([chunked([error_event(&body)])]).await;
        let (response, _) = stream(server.model(), ModelRequest::default()).await;
        for error in [plain, response.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.is_retryable());
            assert!(error.message().ends_with(text), "{error}");
        }
    }
}

#[tokio::test]
async fn a_rejected_call_does_not_end_one_that_was_passed_on() {
    let piece = json!({ "index": 0, "id": "c1", "function": { "name": "look", "arguments": "{" } });
    let begun = event(&delta(json!({ "tool_calls": [piece] })));
    let body = rejected(r#"{"name": "look", "arguments": {}}"#);
    let server = Server::start([chunked([begun, error_event(&body)])]).await;
    let (response, _) = stream(server.model(), ModelRequest::default()).await;
    assert!(response.unwrap_err().is_retryable());
}

/// pydantic/pydantic-ai, `test_azure_prompt_filter_error` and `test_openrouter_errors_raised`, and
/// the vendors' references.
#[tokio::test]
async fn a_prompt_that_a_filter_blocks() {
    let azure = json!({ "error": {
        "message": "The response was filtered due to the prompt triggering a policy.",
        "type": null,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": { "code": "ResponsibleAIPolicyViolation" },
    } });
    let openai = fault(
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        "invalid_request_error",
        json!("invalid_prompt"),
    );
    let openrouter = json!({ "error": {
        "code": 403,
        "message": "m requires moderation. Your input was flagged for \"violence\".",
        "metadata": { "reasons": ["violence"], "flagged_input": "..", "provider_name": "p" },
    } });
    let upstream = json!({ "error": {
        "code": 400,
        "message": "Provider returned error",
        "metadata": { "raw": azure.to_string(), "provider_name": "Azure" },
    } });
    let deepseek = fault("Content Exists Risk", "invalid_request_error", json!("x"));
    for (status, body) in [
        (400, azure),
        (400, openai),
        (403, openrouter),
        (400, upstream),
        (400, deepseek),
    ] {
        for status in [status, 200] {
            let error = failed(reply(status, &body)).await;
            assert_eq!(error.kind(), ErrorKind::ContentFilter, "{status} {body}");
            assert!(!error.is_retryable());
        }
    }
}

#[tokio::test]
async fn an_unknown_model_whatever_the_status() {
    let code = fault("No.", "invalid_request_error", json!("model_not_found"));
    for status in [400, 403, 404, 422, 503] {
        let error = failed(reply(status, &code)).await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "{status}");
        assert!(!error.is_retryable());
    }
    for body in [
        json!({ "error": { "message": "x/y is not a valid model ID", "code": 400 } }),
        json!({ "code": "Client specified an invalid argument", "error": "Model not found: x" }),
        fault(
            "Model Not Exist",
            "invalid_request_error",
            json!("invalid_request_error"),
        ),
    ] {
        let error = failed(reply(400, &body)).await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "{body}");
    }
}

#[tokio::test]
async fn the_providers_code_and_the_reason_of_the_server_behind_are_kept() {
    for (body, code) in [
        (fault("No.", "a", json!("B_c")), Some("B_c")),
        (fault("No.", "a", Value::Null), Some("a")),
        (
            json!({ "error": { "message": "No.", "code": "1301" } }),
            Some("1301"),
        ),
        (
            json!({ "code": "Invalid argument", "error": "No." }),
            Some("Invalid argument"),
        ),
        (json!({ "error": { "message": "No.", "code": 429 } }), None),
    ] {
        for status in [400, 200] {
            let error = failed(reply(status, &body)).await;
            assert_eq!(error.metadata().error_code.as_deref(), code, "{body}");
            let shown = code.map(|code| format!(", code {code}"));
            assert!(
                error.to_string().contains(&shown.unwrap_or_default()),
                "{error}"
            );
        }
    }
    let raw = r#"{"error":{"message":"No room.","code":"context_length_exceeded"}}"#;
    let body = json!({ "error": {
        "message": "Provider returned error",
        "code": 400,
        "metadata": { "raw": raw, "provider_name": "Inner" },
    } });
    let error = failed(reply(400, &body)).await;
    assert_eq!(error.kind(), ErrorKind::ContextLength);
    assert_eq!(error.message(), "Provider returned error: Inner: No room.");
}

#[tokio::test]
async fn every_error_of_a_call_names_its_method_and_url() {
    let server = Server::start([
        reply(404, &json!({ "detail": "Not Found" })),
        reply(200, &fault("No.", "a", Value::Null)),
        chunked([event(&delta(json!({ "content": "cut" })))]),
        vec!["HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".into()],
    ])
    .await;
    let url = format!("{}/v1?key=sk-in-the-query", server.base_url);
    let model = server.builder().base_url(url).build().unwrap();
    // The last one is refused.
    for _ in 0..4 {
        let error = call(model.clone(), ModelRequest::default())
            .await
            .unwrap_err();
        let endpoint = format!("POST {}/v1/chat/completions", server.base_url);
        assert_eq!(
            error.metadata().endpoint.as_deref(),
            Some(&*endpoint),
            "{error}"
        );
        assert!(
            error.to_string().contains(&format!("({endpoint}")),
            "{error}"
        );
    }
    let gone = server.builder().base_url("http://127.0.0.1:1/sk-path-key");
    let gone = gone.api_key("sk-path-key").build().unwrap();
    let error = call(gone, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    let endpoint = "POST http://127.0.0.1:1/[hidden]/chat/completions";
    assert_eq!(error.metadata().endpoint.as_deref(), Some(endpoint));
}

#[tokio::test]
async fn an_answer_does_not_say_where_it_came_from() {
    let server = Server::start([says("ok")]).await;
    let response = call(server.model(), ModelRequest::default()).await.unwrap();
    assert_eq!(response.metadata().endpoint, None);
}

#[tokio::test]
async fn the_server_knows_whether_to_try_again() {
    for (status, word, expected) in [(500, "false", false), (400, "true", true), (500, "?", true)] {
        let error = failed(whole(status, &[("x-should-retry", word)], "")).await;
        assert_eq!(error.is_retryable(), expected, "{status} {word}");
    }
}

#[tokio::test]
async fn how_long_to_wait() {
    let seconds = Duration::from_secs;
    for (headers, expected) in [
        (&[("retry-after", "20")][..], Some(seconds(20))),
        (
            &[("retry-after", " 1.5 ")],
            Some(Duration::from_millis(1500)),
        ),
        (
            &[("retry-after-ms", "250"), ("retry-after", "1")],
            Some(Duration::from_millis(250)),
        ),
        (
            &[("retry-after-ms", "soon"), ("retry-after", "1")],
            Some(seconds(1)),
        ),
        (
            &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")],
            Some(seconds(0)),
        ),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "inf")], None),
        (&[("retry-after", "1e300")], None),
        (&[("retry-after", "")], None),
    ] {
        for status in [429, 503] {
            let error = failed(whole(status, headers, "")).await;
            assert_eq!(error.retry_after(), expected, "{headers:?}");
        }
    }
    let date = httpdate::fmt_http_date(SystemTime::now() + seconds(3600));
    let wait = failed(whole(429, &[("retry-after", &date)], ""))
        .await
        .retry_after()
        .unwrap();
    assert!(wait > seconds(3500) && wait <= seconds(3600), "{wait:?}");
}

#[tokio::test]
async fn every_shape_of_an_error() {
    for (body, message) in [
        (json!({ "error": "Plain words." }), "Plain words."),
        (json!({ "message": "At the top." }), "At the top."),
        (
            json!({ "error": "Bad Request", "message": "More words." }),
            "Bad Request",
        ),
        (json!({ "detail": "Not Found" }), "Not Found"),
        (
            json!({ "detail": [{ "msg": "field required" }] }),
            "[{\"msg\":\"field required\"}]",
        ),
        (
            json!([{ "error": { "code": 400, "message": "In a list." } }]),
            "In a list.",
        ),
        (json!({ "error": { "code": 7 } }), "{\"code\":7}"),
    ] {
        let error = failed(reply(400, &body)).await;
        assert_eq!(error.message(), message, "{body}");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn an_error_that_is_no_json() {
    let error = failed(whole(502, &[], "<html>\n<h1>Bad  Gateway</h1>")).await;
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert_eq!(
        error.message(),
        "the server responded with 502 Bad Gateway: <html> <h1>Bad Gateway</h1>"
    );
    let error = failed(whole(503, &[], "")).await;
    assert_eq!(
        error.message(),
        "the server responded with 503 Service Unavailable"
    );
    let error = failed(whole(418, &[], "{}")).await;
    assert_eq!(
        error.message(),
        "the server responded with 418 I'm a teapot: {}"
    );
    let error = failed(whole(599, &[], "")).await;
    assert_eq!(error.message(), "the server responded with 599");
}

#[tokio::test]
async fn the_status_counts_even_if_the_body_breaks_off() {
    let head = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 100\r\n\r\n{\"err";
    let error = failed(vec![head.into()]).await;
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(
        error.message(),
        "the server responded with 401 Unauthorized"
    );
}

/// Errors that stand in a body instead of a status.
fn without_status() -> Vec<(Value, ErrorKind, bool)> {
    let word = |kind: &str, code: Value| fault("Sorry.", kind, code);
    vec![
        (word("server_error", Value::Null), ErrorKind::Provider, true),
        (word("something", Value::Null), ErrorKind::Provider, true),
        (
            word("invalid_request_error", json!("invalid_api_key")),
            ErrorKind::Auth,
            false,
        ),
        (
            word("authentication_error", Value::Null),
            ErrorKind::Auth,
            false,
        ),
        (
            word("invalid_request_error", Value::Null),
            ErrorKind::InvalidRequest,
            false,
        ),
        (
            word("rate_limit_error", Value::Null),
            ErrorKind::RateLimited,
            true,
        ),
        (
            word("tokens", json!("rate_limit_exceeded")),
            ErrorKind::RateLimited,
            true,
        ),
        (
            word("insufficient_quota", Value::Null),
            ErrorKind::RateLimited,
            false,
        ),
        (
            word("overloaded_error", Value::Null),
            ErrorKind::Overloaded,
            true,
        ),
        (word("timeout", Value::Null), ErrorKind::Timeout, true),
        (
            word("invalid_request_error", json!("model_not_found")),
            ErrorKind::NotFound,
            false,
        ),
        (
            word("x", json!("context_length_exceeded")),
            ErrorKind::ContextLength,
            false,
        ),
        (word("x", json!(429)), ErrorKind::RateLimited, true),
        (word("x", json!("503")), ErrorKind::Overloaded, true),
        (
            word("BadRequestError", json!(400)),
            ErrorKind::InvalidRequest,
            false,
        ),
    ]
}

#[tokio::test]
async fn an_error_inside_a_plain_answer() {
    for (body, kind, retryable) in without_status() {
        let error = failed(reply(200, &body)).await;
        assert_eq!((error.kind(), error.message()), (kind, "Sorry."), "{body}");
        assert_eq!(error.is_retryable(), retryable, "{body}");
        assert_eq!(error.metadata().status, Some(200));
        let choice = json!({ "choices": [{ "error": body["error"], "message": {} }] });
        assert_eq!(failed(reply(200, &choice)).await.kind(), kind, "{choice}");
        let list = json!([body]);
        assert_eq!(failed(reply(200, &list)).await.kind(), kind, "{list}");
    }
    let top = json!({ "object": "error", "message": "Sorry.", "type": "x", "code": 404 });
    assert_eq!(failed(reply(200, &top)).await.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_error_inside_a_stream() {
    let begun = event(&delta(json!({ "content": "Hel" })));
    for (body, kind, retryable) in without_status() {
        for said in [
            event(&body),
            format!("event: error\n{}", event(&body["error"])),
        ] {
            let server = Server::start([chunked([&begun, &said])]).await;
            let (response, chunks) = stream(server.model(), ModelRequest::default()).await;
            let error = response.unwrap_err();
            assert_eq!((error.kind(), error.message()), (kind, "Sorry."), "{said}");
            assert_eq!(error.is_retryable(), retryable, "{said}");
            assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
            assert_eq!(deltas(chunks), [text("Hel")]);
        }
    }
}

#[tokio::test]
async fn an_error_event_that_is_no_json() {
    let server = Server::start([chunked(["event: error\ndata: out of memory\n\n"])]).await;
    let (response, _) = stream(server.model(), ModelRequest::default()).await;
    let error = response.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Provider, "out of memory")
    );
}
