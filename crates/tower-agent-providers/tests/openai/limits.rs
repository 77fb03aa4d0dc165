//! Responses that are larger than a call may cost.

use serde_json::json;
use tower_agent::stream::channel;
use tower_agent::{ErrorKind, ModelRequest};

use crate::server::{Server, delta, events, says, unfinished, whole};
use test_support::call;

#[tokio::test]
async fn a_response_is_read_up_to_its_limit() {
    let long = "x".repeat(5000);
    let of_stream: Vec<_> = (0..50)
        .map(|_| delta(json!({ "content": "x".repeat(100) })))
        .collect();
    for reply in [
        says(&long),
        events(&of_stream),
        unfinished((0..50).map(|_| format!(": {}\n", "x".repeat(100)))),
    ] {
        let server = Server::start([reply]).await;
        let model = server.builder().max_response(4000).build().unwrap();
        let (sender, _events) = channel(99);
        let request = ModelRequest::default().with_delta_sender(sender);
        let error = call(model, request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(!error.is_retryable(), "{error:?}");
        assert!(
            error
                .message()
                .starts_with("the response is larger than 4000 bytes: "),
            "{error}"
        );
    }
}

/// A line without an end is kept in memory until it ends.
#[tokio::test]
async fn a_line_may_have_half_of_a_response() {
    let line = |len: usize| format!("data: {}", "x".repeat(len - 6));
    for (len, is_line) in [(2000, false), (2001, true)] {
        let server = Server::start([unfinished([line(len)])]).await;
        let model = server.builder().max_response(4000).build().unwrap();
        let (sender, _events) = channel(99);
        let request = ModelRequest::default().with_delta_sender(sender);
        let error = call(model, request).await.unwrap_err();
        let is_too_long = error
            .message()
            .starts_with("a line of the response is larger than 2000 bytes: ");
        assert_eq!(is_too_long, is_line, "{len}: {error}");
        assert_eq!(error.is_retryable(), !is_line, "{len}: {error}");
    }
}

#[tokio::test]
async fn a_response_of_just_the_limit_is_whole() {
    let body = json!({ "choices": [{ "message": { "content": "hi" }, "finish_reason": "stop" }] });
    let body = body.to_string();
    let server = Server::start([whole(200, &[("content-type", "application/json")], &body)]).await;
    let model = server.builder().max_response(body.len()).build().unwrap();
    let response = call(model, ModelRequest::default()).await.unwrap();
    assert_eq!(response.text(), "hi");
}

/// The server would send for ever; its status is known.
#[tokio::test]
async fn an_error_without_end_is_the_error_of_its_status() {
    let body = format!("<p>overloaded</p>{}", "x".repeat(3 << 20));
    let server = Server::start([whole(503, &[], body)]).await;
    let error = call(server.model(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.metadata().status, Some(503));
    assert!(error.message().contains("overloaded"), "{error}");
}
