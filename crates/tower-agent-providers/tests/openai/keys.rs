//! Keys that are fetched for a call, and headers of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue};
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt};
use tower_agent::{BoxError, Error, ErrorKind, ModelRequest};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_providers::RequestHeaders;

use crate::server::{Server, json as reply, says};
use test_support::call;

fn error(status: u16, message: &str) -> crate::server::Reply {
    reply(status, &json!({ "error": { "message": message } }))
}

#[tokio::test]
async fn each_attempt_has_the_key_of_its_time() {
    let server = Server::start([error(500, "once more"), says("hi"), says("ho")]).await;
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let model = server
        .builder()
        .api_key("an old one")
        .api_key_with(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                // As it stands in a file.
                Ok(format!("key-{number}\n"))
            }
        });
    assert_eq!(fetched.load(Ordering::SeqCst), 0);
    let retry = CallRetryLayer::new().backoff(std::time::Duration::ZERO, std::time::Duration::ZERO);
    let model = ServiceBuilder::new()
        .layer(retry)
        .service(model.build().unwrap());

    for expected in ["hi", "ho"] {
        let response = model
            .clone()
            .oneshot(ModelRequest::default())
            .await
            .unwrap();
        assert_eq!(response.text(), expected);
    }

    let seen = server.seen();
    let keys: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("authorization"))
        .collect();
    assert_eq!(
        keys,
        [
            Some("Bearer key-0"),
            Some("Bearer key-1"),
            Some("Bearer key-2")
        ]
    );
}

#[tokio::test]
async fn a_key_that_was_fetched_is_hidden_in_errors() {
    let server = Server::start([error(401, "sk-12345678 is expired")]).await;
    let model = server
        .builder()
        .api_key_with(async || Ok("sk-12345678".to_owned()));
    let error = call(model.build().unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(
        !format!("{error} {error:?}").contains("12345678"),
        "{error:?}"
    );
}

#[tokio::test]
async fn nothing_is_sent_without_the_key() {
    let server = Server::start([]).await;
    for (fails, kind) in [(false, ErrorKind::Auth), (true, ErrorKind::Connection)] {
        let model = server.builder().api_key_with(move || async move {
            let gone = "the vault is sealed";
            Err::<String, BoxError>(if fails {
                Error::new(ErrorKind::Connection, gone).into()
            } else {
                gone.into()
            })
        });
        let error = call(model.build().unwrap(), ModelRequest::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains("the vault is sealed"), "{error}");
    }
    let model = server
        .builder()
        .api_key_with(async || Ok("two\nlines".to_owned()));
    let error = call(model.build().unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert!(
        error.message().contains("not allowed in an HTTP header"),
        "{error}"
    );
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn the_headers_of_a_call_replace_those_of_the_model_in_it_alone() {
    let server = Server::start([error(400, "no team t-secret-1234"), says("hi")]).await;
    let model = server
        .builder()
        .header("x-team", "all")
        .header("x-trace", "on");
    let model = model.build().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-team", HeaderValue::from_static("t-secret-1234"));
    let mut request = ModelRequest::default();
    request
        .extensions_mut()
        .insert(RequestHeaders::from(headers));

    let error = call(model.clone(), request).await.unwrap_err();
    assert!(
        !format!("{error} {error:?}").contains("t-secret"),
        "{error:?}"
    );
    let response = call(model, ModelRequest::default()).await.unwrap();
    assert_eq!(response.text(), "hi");

    let seen = server.seen();
    let teams: Vec<_> = seen.iter().map(|seen| seen.header("x-team")).collect();
    assert_eq!(teams, [Some("t-secret-1234"), Some("all")]);
    assert!(seen.iter().all(|seen| seen.header("x-trace") == Some("on")));
}
