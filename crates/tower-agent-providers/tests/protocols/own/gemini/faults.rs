//! Errors that the provider reports.

use std::time::Duration;

use serde_json::{Value, json};
use tower_agent::{Error, ErrorKind, ModelRequest};

use super::{event, model, parts};
use crate::server::{Reply, Server, chunked, json as reply, whole};
use test_support::{call, deltas, stream, text};

fn fault(code: u16, status: &str, message: &str, details: Value) -> Value {
    let error = json!({ "code": code, "status": status, "message": message, "details": details });
    json!({ "error": error })
}

async fn failed(reply: Reply) -> Error {
    let server = Server::start([reply]).await;
    call(model(&server), ModelRequest::default())
        .await
        .unwrap_err()
}

async fn failed_in_stream(body: String) -> Error {
    let first = event(&parts(json!([{ "text": "Hel" }])));
    let server = Server::start([chunked([first, body])]).await;
    let (response, chunks) = stream(model(&server), ModelRequest::default()).await;
    assert_eq!(deltas(chunks), [text("Hel")]);
    response.unwrap_err()
}

fn exhausted(quota: &str) -> Value {
    let details = json!([
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{ "quotaMetric": "requests", "quotaId": quota }],
        },
        { "@type": "type.googleapis.com/google.rpc.Help", "links": [] },
        { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s" },
    ]);
    fault(
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota.",
        details,
    )
}

#[tokio::test]
async fn every_status() {
    for (code, status, kind) in [
        (400, "INVALID_ARGUMENT", ErrorKind::InvalidRequest),
        (400, "FAILED_PRECONDITION", ErrorKind::InvalidRequest),
        (401, "UNAUTHENTICATED", ErrorKind::Auth),
        (403, "PERMISSION_DENIED", ErrorKind::Auth),
        (404, "NOT_FOUND", ErrorKind::NotFound),
        (429, "RESOURCE_EXHAUSTED", ErrorKind::RateLimited),
        (500, "INTERNAL", ErrorKind::Provider),
        (503, "UNAVAILABLE", ErrorKind::Overloaded),
        (504, "DEADLINE_EXCEEDED", ErrorKind::Timeout),
    ] {
        let fault = fault(code, status, "It went wröng.", json!([]));
        let error = failed(reply(code, &fault)).await;
        assert_eq!(
            (error.kind(), error.message()),
            (kind, "It went wröng."),
            "{status}"
        );
        assert_eq!(error.metadata().status, Some(code));
        // The same in the middle of a stream, whose status was 200.
        let error = failed_in_stream(event(&fault)).await;
        assert_eq!(
            (error.kind(), error.message()),
            (kind, "It went wröng."),
            "{status}"
        );
    }
}

#[tokio::test]
async fn the_delay_that_the_body_asks_for() {
    let minute = exhausted("GenerateRequestsPerMinutePerProjectPerModel-FreeTier");
    for error in [
        failed(reply(429, &minute)).await,
        failed(reply(429, &json!([minute]))).await,
        failed_in_stream(event(&minute)).await,
        failed_in_stream(format!("event: error\r\n{}", event(&minute))).await,
        failed_in_stream(event(&json!([minute]))).await,
    ] {
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(12_500)));
        assert!(error.is_retryable());
    }
    let body = minute.to_string();
    let error = failed(whole(429, &[("retry-after", "3")], body)).await;
    assert_eq!(
        error.retry_after(),
        Some(Duration::from_secs(3)),
        "the header wins"
    );
}

#[tokio::test]
async fn a_quota_that_lasts_until_tomorrow_is_not_retried() {
    let day = exhausted("GenerateRequestsPerDayPerProjectPerModel-FreeTier");
    let error = failed(reply(429, &day)).await;
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(!error.is_retryable());
}

/// The provider sends the status 400 for these.
#[tokio::test]
async fn a_wrong_key_and_a_long_prompt_are_told_apart() {
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID", "domain": "googleapis.com",
    }]);
    let invalid = |message, details| fault(400, "INVALID_ARGUMENT", message, details);
    let key = invalid("API key not valid. Please pass a valid API key.", details);
    assert_eq!(failed(reply(400, &key)).await.kind(), ErrorKind::Auth);
    let message =
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
    let error = failed(reply(400, &invalid(message, json!([])))).await;
    assert_eq!(error.kind(), ErrorKind::ContextLength);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn an_error_with_status_200() {
    let fault = fault(503, "UNAVAILABLE", "The model is overloaded.", json!([]));
    for body in [fault.clone(), json!([fault])] {
        let error = failed(reply(200, &body)).await;
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert_eq!(error.message(), "The model is overloaded.");
    }
}

#[tokio::test]
async fn a_body_that_is_no_error_of_the_protocol() {
    let error = failed(whole(502, &[], "<html>Bad gateway</html>")).await;
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.message().contains("Bad gateway"), "{error}");
    let error = failed(whole(200, &[("content-type", "application/json")], "[1")).await;
    assert_eq!(error.kind(), ErrorKind::Protocol);
    let error = failed(reply(200, &json!([]))).await;
    assert_eq!(error.kind(), ErrorKind::Protocol);
}
