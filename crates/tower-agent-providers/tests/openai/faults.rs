//! Errors that servers send.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tower_agent::{Error, ErrorKind, ModelRequest};

use crate::server::{Reply, Server, chunked, delta, event, json as reply, whole};
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
        assert_eq!(error.metadata().status(), Some(status));
        assert_eq!(error.metadata().request_id(), Some("req_1"));
        let limits: Vec<_> = error.metadata().rate_limits().collect();
        assert_eq!(limits, [("x-ratelimit-limit-requests", "60")]);
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

/// pydantic/pydantic-ai, `test_tool_use_failed_error` and `.._streaming`: Groq checks the call of a
/// model by its schema.
#[tokio::test]
async fn a_call_that_groq_rejects_may_be_tried_again() {
    let body = json!({ "error": {
        "message": "Tool call validation failed",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": "{\"name\": \"look\", \"arguments\": {\"foo\": 1}}",
    } });
    let plain = failed(reply(400, &body)).await;
    let server = Server::start([chunked([
        event(&delta(json!({ "reasoning": "hm" }))),
        format!("event: error\ndata: {body}\n\n"),
    ])])
    .await;
    let (response, _) = stream(server.model(), ModelRequest::default()).await;
    for error in [plain, response.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.is_retryable());
        assert!(error.message().ends_with("{\"foo\": 1}}"), "{error}");
    }
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
        assert_eq!(error.metadata().status(), Some(200));
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
            assert_eq!(error.metadata().request_id(), Some("req_1"));
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
