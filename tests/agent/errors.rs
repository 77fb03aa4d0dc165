//! Errors: their kinds and causes, and which are worth another attempt.

use std::error::Error as StdError;
use std::time::Duration;

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_agent::message::Metadata;
use tower_agent::{BoxError, Error, ErrorKind, ModelRequest, ModelResponse};

fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut link = error.source();
    while let Some(cause) = link {
        text = format!("{text} <- {cause}");
        link = cause.source();
    }
    text
}

#[derive(Debug, thiserror::Error)]
#[error("the layer gave up")]
struct Wrapping(#[source] BoxError);

#[test]
fn an_error_is_found_again_through_the_layers_that_box_it() {
    let ours = Error::abort("over budget");
    let boxed: BoxError = Wrapping(Wrapping(ours.into()).into()).into();
    let found = Error::from(boxed);
    assert_eq!(
        (found.kind(), found.message()),
        (ErrorKind::Aborted, "over budget")
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_tower_layers_have_their_kind() {
    let hangs =
        service_fn(|_: ModelRequest| std::future::pending::<Result<ModelResponse, Error>>());
    let timed = tower::timeout::TimeoutLayer::new(Duration::from_secs(1)).layer(hangs);
    let elapsed = Error::from(timed.oneshot(ModelRequest::default()).await.unwrap_err());
    assert_eq!(elapsed.kind(), ErrorKind::Timeout);
    assert!(elapsed.is_retryable());
    assert!(
        elapsed
            .downcast_ref::<tower::timeout::error::Elapsed>()
            .is_some()
    );

    let limit = tower::limit::ConcurrencyLimit::new(hangs, 1);
    let mut busy = limit.clone();
    let held = busy.ready().await.unwrap().call(ModelRequest::default());
    let mut shed = tower::load_shed::LoadShed::new(limit);
    let refused = shed
        .ready()
        .await
        .unwrap()
        .call(ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(Error::from(refused).kind(), ErrorKind::Overloaded);
    drop(held);

    let (buffer, worker) = tower::buffer::Buffer::<ModelRequest, _>::pair(hangs, 1);
    drop(worker);
    let closed = Error::from(buffer.oneshot(ModelRequest::default()).await.unwrap_err());
    assert_eq!(closed.kind(), ErrorKind::Other);
    assert!(!closed.is_retryable());
}

#[test]
fn an_error_says_what_happened_and_its_causes_once() {
    let parse = "x".parse::<u8>().unwrap_err();
    assert_eq!(
        chain(&Error::from(parse.clone())),
        "failed: invalid digit found in string"
    );
    let told = Error::new(ErrorKind::Tool, "the price is no number").with_source(parse);
    assert_eq!(
        chain(&told),
        "tool failed: the price is no number <- invalid digit found in string"
    );
    let mut metadata = Metadata::default();
    metadata.status = Some(429);
    metadata.request_id = Some("req_1".into());
    let limited = Error::new(ErrorKind::RateLimited, "slow down")
        .with_retry_after(Duration::from_millis(1500))
        .with_metadata(metadata);
    assert_eq!(
        limited.to_string(),
        "rate limited: slow down (status 429, request req_1); retry after 1.5 s"
    );
    let denied = Error::new(ErrorKind::Auth, "no such key");
    assert_eq!(
        denied.to_string(),
        "not authorised: no such key; check the API key"
    );
}

#[test]
fn only_some_failures_are_worth_a_second_try() {
    use ErrorKind::*;
    for kind in [
        Timeout,
        RateLimited,
        Overloaded,
        Provider,
        Connection,
        Protocol,
    ] {
        assert!(Error::new(kind, "").is_retryable(), "{kind:?}");
    }
    for kind in [
        Aborted,
        Auth,
        NotFound,
        InvalidRequest,
        ContextLength,
        Tool,
        InvalidArguments,
    ] {
        assert!(!Error::new(kind, "").is_retryable(), "{kind:?}");
    }
    assert!(
        !Error::new(RateLimited, "quota spent")
            .with_retryable(false)
            .is_retryable()
    );
}
