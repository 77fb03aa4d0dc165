//! Errors of the server.

use std::time::Duration;

use serde_json::{Value, json};
use tower_agent::{Error, ErrorKind, Message, ModelRequest};

use super::fixtures::{
    answer, builder, event, events, events_of, model, plain, streamed, text_block,
};
use crate::server::{Reply, Server, chunked, json as reply, whole};
use test_support::{call, text};

fn error(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_9" })
}

async fn refused(reply: Reply) -> Error {
    let server = Server::start([reply]).await;
    call(model(&server), ModelRequest::new([Message::user("Hi.")]))
        .await
        .unwrap_err()
}

#[tokio::test]
async fn every_error_status() {
    for (status, word, kind, is_retryable) in [
        (
            400,
            "invalid_request_error",
            ErrorKind::InvalidRequest,
            false,
        ),
        (401, "authentication_error", ErrorKind::Auth, false),
        (402, "billing_error", ErrorKind::InvalidRequest, false),
        (403, "permission_error", ErrorKind::Auth, false),
        (404, "not_found_error", ErrorKind::NotFound, false),
        (413, "request_too_large", ErrorKind::InvalidRequest, false),
        (429, "rate_limit_error", ErrorKind::RateLimited, true),
        (500, "api_error", ErrorKind::Provider, true),
        (504, "timeout_error", ErrorKind::Timeout, true),
        (529, "overloaded_error", ErrorKind::Overloaded, true),
    ] {
        let error = refused(reply(status, &error(word, "What it says."))).await;
        assert_eq!(error.kind(), kind, "{status}");
        assert_eq!(error.is_retryable(), is_retryable, "{status}");
        assert!(error.message().starts_with("What it says."), "{error}");
        assert_eq!(error.metadata().status, Some(status));
    }
}

#[tokio::test]
async fn a_rate_limit_says_how_long_to_wait() {
    let headers = [
        ("retry-after", "17"),
        ("request-id", "req_9"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
    ];
    let body = error("rate_limit_error", "Slow down.").to_string();
    let error = refused(whole(429, &headers, body)).await;
    assert_eq!(error.retry_after(), Some(Duration::from_secs(17)));
    assert_eq!(error.metadata().request_id.as_deref(), Some("req_9"));
    let limits = &error.metadata().rate_limits;
    assert_eq!(
        *limits,
        [("anthropic-ratelimit-tokens-remaining".into(), "0".into())].into()
    );
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_apart() {
    for message in [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    ] {
        let body = error("invalid_request_error", message);
        let error = refused(reply(400, &body)).await;
        assert_eq!(error.kind(), ErrorKind::ContextLength, "{message}");
        let (response, _) = streamed(events(&[body])).await;
        assert_eq!(
            response.unwrap_err().kind(),
            ErrorKind::ContextLength,
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_error_event_after_200_is_an_error_and_not_an_end() {
    let begun = events_of(&answer(json!([text_block("hi there")]), "end_turn"));
    for (word, kind, is_retryable) in [
        ("overloaded_error", ErrorKind::Overloaded, true),
        ("rate_limit_error", ErrorKind::RateLimited, true),
        ("timeout_error", ErrorKind::Timeout, true),
        ("api_error", ErrorKind::Provider, true),
        ("invalid_request_error", ErrorKind::InvalidRequest, false),
        ("billing_error", ErrorKind::RateLimited, false),
    ] {
        let error = error(word, "Not now.");
        let data = |name: &str| format!("{name}data: {error}\n\n");
        for last in [event(&error), data(""), data("event: message\n")] {
            let bytes: String = begun[..4].iter().map(event).chain([last]).collect();
            let (response, deltas) = streamed(chunked([bytes])).await;
            let error = response.unwrap_err();
            assert_eq!(error.kind(), kind, "{word}");
            assert_eq!(error.message(), "Not now.", "{word}");
            assert_eq!(error.is_retryable(), is_retryable, "{word}");
            assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
            assert_eq!(error.metadata().model.as_deref(), Some("claude-test-1"));
            assert_eq!(deltas, [text("hi t")]);
        }
    }
}

#[tokio::test]
async fn an_error_event_need_not_be_json() {
    let bytes = "event: error\ndata: upstream went away\n\n";
    let (response, _) = streamed(chunked([bytes])).await;
    let error = response.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Provider, "upstream went away")
    );
}

#[tokio::test]
async fn an_error_in_a_successful_response_is_an_error() {
    let error = plain(&error("overloaded_error", "Overloaded"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Overloaded, "Overloaded")
    );
    let gateway = json!({ "error": { "message": "No credit.", "code": 402 } });
    assert_eq!(plain(&gateway).await.unwrap_err().message(), "No credit.");
}

#[tokio::test]
async fn headers_and_address() {
    let server = Server::start([
        reply(200, &answer(json!([]), "end_turn")),
        reply(200, &answer(json!([]), "end_turn")),
    ])
    .await;
    let request = || ModelRequest::new([Message::user("Hi.")]);
    call(model(&server), request()).await.unwrap();
    let beta = builder(&server).header("anthropic-beta", "a-2026-01-01,b-2026-02-02");
    let other = beta
        .header("anthropic-version", "2026-01-01")
        .build()
        .unwrap();
    call(other, request()).await.unwrap();
    let [first, second] = &server.seen()[..] else {
        panic!()
    };
    assert_eq!(first.line(), "POST /v1/messages");
    assert_eq!(first.header("x-api-key"), Some("sk-ant-1"));
    assert_eq!(first.header("authorization"), None);
    assert_eq!(first.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(first.header("anthropic-beta"), None);
    assert_eq!(
        second.header("anthropic-beta"),
        Some("a-2026-01-01,b-2026-02-02")
    );
    assert_eq!(second.header("anthropic-version"), Some("2026-01-01"));
}

#[tokio::test]
async fn a_key_in_an_error_is_hidden() {
    let body = error("authentication_error", "invalid x-api-key: sk-ant-1");
    let error = refused(reply(401, &body)).await;
    assert!(
        !format!("{error:?}{error}").contains("sk-ant-1"),
        "{error:?}"
    );
}
