//! Errors, and answers that were blocked.

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::{Error, ErrorKind, ModelRequest, ModelResponse};

use super::{completed, delta, events, interaction, model, says};
use crate::server::{Reply, Server, chunked, json as reply};
use test_support::{call, stream};

fn word(text: &str) -> Value {
    delta(0, json!({ "type": "text", "text": text }))
}

fn error(code: &str) -> Value {
    json!({ "code": code, "message": "What happened." })
}

async fn plain(body: Reply) -> Result<ModelResponse, Error> {
    let server = Server::start([body]).await;
    call(model(&server), ModelRequest::default()).await
}

async fn streamed(all: &[Value]) -> Result<ModelResponse, Error> {
    let server = Server::start([events(all)]).await;
    stream(model(&server), ModelRequest::default()).await.0
}

/// An error as the body of a response, as an event, and as what an interaction failed of.
async fn failed(status: u16, code: &str) -> [Error; 3] {
    let whole = json!({ "error": error(code) });
    let event = json!({ "event_type": "error", "error": error(code) });
    let mut failed = interaction("failed", json!([says("a")]));
    failed["errors"] = json!([error(code)]);
    [
        plain(reply(status, &whole)).await.unwrap_err(),
        streamed(&[word("a"), event]).await.unwrap_err(),
        plain(reply(200, &failed)).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn codes_say_what_kind_of_error_it_is() {
    for (status, code, kind, is_retryable) in [
        (400, "invalid_request", ErrorKind::InvalidRequest, false),
        (400, "failed_precondition", ErrorKind::InvalidRequest, false),
        (400, "parameter_unknown", ErrorKind::InvalidRequest, false),
        (416, "out_of_range", ErrorKind::InvalidRequest, false),
        (401, "authentication", ErrorKind::Auth, false),
        (403, "permission_denied", ErrorKind::Auth, false),
        (404, "not_found", ErrorKind::NotFound, false),
        (404, "model_not_found", ErrorKind::NotFound, false),
        (429, "rate_limit_exceeded", ErrorKind::RateLimited, true),
        (429, "too_many_requests", ErrorKind::RateLimited, true),
        (429, "quota_exceeded", ErrorKind::RateLimited, false),
        (500, "api_error", ErrorKind::Provider, true),
        (503, "service_unavailable", ErrorKind::Overloaded, true),
        (504, "deadline_exceeded", ErrorKind::Timeout, true),
        (504, "gateway_timeout", ErrorKind::Timeout, true),
        (400, "malformed_function_call", ErrorKind::Provider, true),
        (400, "unexpected_tool_call", ErrorKind::Provider, true),
        (
            400,
            "missing_thought_signature",
            ErrorKind::InvalidRequest,
            false,
        ),
    ] {
        for error in failed(status, code).await {
            assert_eq!(
                (error.kind(), error.message()),
                (kind, "What happened."),
                "{code}"
            );
            assert_eq!(error.is_retryable(), is_retryable, "{code}");
        }
    }
}

#[tokio::test]
async fn a_blocked_answer_has_the_reason() {
    for code in [
        "safety",
        "prohibited_content",
        "blocklist",
        "spii",
        "recitation",
        "language",
    ] {
        let event = json!({ "event_type": "error", "error": error(code) });
        let mut failed = interaction("failed", json!([says("a")]));
        failed["errors"] = json!([error(code)]);
        let streamed = streamed(&[word("a"), event]).await.unwrap();
        for response in [plain(reply(200, &failed)).await.unwrap(), streamed] {
            assert_eq!(
                response.finish_reason(),
                &FinishReason::ContentFilter,
                "{code}"
            );
            assert_eq!(response.text(), "a");
            let data = response
                .message()
                .provider()
                .get("gemini_interactions")
                .unwrap();
            assert_eq!(data["error"], error(code));
        }
    }
}

#[tokio::test]
async fn an_interaction_that_did_not_end_well_is_an_error() {
    for (status, kind, message) in [
        ("failed", ErrorKind::Provider, "the response failed"),
        (
            "cancelled",
            ErrorKind::Provider,
            "the response was cancelled",
        ),
        (
            "in_progress",
            ErrorKind::Protocol,
            "its status is `in_progress`",
        ),
        ("queued", ErrorKind::Protocol, "its status is `queued`"),
    ] {
        let plain = plain(reply(200, &interaction(status, json!([says("a")])))).await;
        for result in [plain, streamed(&[word("a"), completed(status)]).await] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{status}");
            assert!(error.message().contains(message), "{status}: {error}");
        }
    }
    let mut step = says("a");
    step["error"] = json!({ "code": 13, "message": "No image." });
    let error = plain(reply(200, &interaction("failed", json!([step.clone()]))))
        .await
        .unwrap_err();
    assert_eq!(error.message(), "No image.");
    // If the rest is an answer, it is one.
    let response = plain(reply(200, &interaction("completed", json!([step]))))
        .await
        .unwrap();
    let data = response
        .message()
        .provider()
        .get("gemini_interactions")
        .unwrap();
    assert_eq!(
        (response.text(), &data["error"]["message"]),
        ("a".into(), &json!("No image."))
    );
}

#[tokio::test]
async fn a_stream_without_its_last_event_is_an_error() {
    let running = json!({ "event_type": "interaction.status_update", "status": "completed" });
    let server = Server::start([
        chunked([
            format!("data: {}\n\n", word("a")),
            "event: done\ndata: [DONE]\n\n".into(),
        ]),
        events(&[word("a"), running]),
    ])
    .await;
    for _ in 0..2 {
        let error = stream(model(&server), ModelRequest::default())
            .await
            .0
            .unwrap_err();
        assert!(error.message().contains("ended early"), "{error}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn errors_that_a_gateway_writes() {
    let google = json!({ "code": 503, "message": "Busy.", "status": "UNAVAILABLE" });
    for event in [
        "event: error\ndata: Busy.\n\n".to_owned(),
        format!("event: error\ndata: {}\n\n", json!({ "error": "Busy." })),
        format!("data: {}\n\n", json!({ "error": google })),
        format!("event: error\ndata: {}\n\n", json!({ "error": google })),
    ] {
        let server = Server::start([chunked([format!("data: {}\n\n", word("a")), event])]).await;
        let error = stream(model(&server), ModelRequest::default())
            .await
            .0
            .unwrap_err();
        assert_eq!(error.message(), "Busy.");
    }
    for body in [json!({}), json!({ "candidates": [] }), json!([])] {
        let error = plain(reply(200, &body)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{body}");
    }
    let error = plain(reply(200, &json!({ "error": { "message": "Busy." } })))
        .await
        .unwrap_err();
    assert_eq!(error.message(), "Busy.");
}
