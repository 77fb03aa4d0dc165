//! Layers of tower and tower-http under the client.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tower::retry::Policy;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_agent::model::ModelService;
use tower_agent::{ErrorKind, ModelRequest};
use tower_agent_providers::openai::OpenAi;
use tower_agent_providers::{HttpClient, RequestBody};
use tower_http::set_header::SetRequestHeaderLayer;
use tower_http::trace::TraceLayer;

use crate::server::{Server, delta, events, finished, says, whole};
use test_support::{call, stream};

/// Tries overloaded servers again, so many times.
#[derive(Clone)]
struct Again(usize);

impl<B, E> Policy<Request<RequestBody>, Response<B>, E> for Again {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<RequestBody>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Self::Future> {
        let status = result.as_ref().map(Response::status);
        let again = self.0 > 0 && matches!(status, Ok(StatusCode::SERVICE_UNAVAILABLE));
        again.then(|| {
            self.0 -= 1;
            ready(())
        })
    }

    fn clone_request(&mut self, request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn layers_of_tower_and_tower_http_stack_under_it() {
    let server = Server::start([
        whole(503, &[], ""),
        whole(503, &[], ""),
        says("hi"),
        whole(503, &[], ""),
        events(&[
            delta(serde_json::json!({ "content": "hi" })),
            finished("stop"),
        ]),
    ])
    .await;
    let http = ServiceBuilder::new()
        .concurrency_limit(2)
        .layer(TraceLayer::new_for_http())
        .layer(SetRequestHeaderLayer::overriding(
            http::HeaderName::from_static("x-tenant"),
            HeaderValue::from_static("blue"),
        ))
        .retry(Again(2))
        .timeout(Duration::from_secs(60))
        .service(HttpClient::new().unwrap());
    let model = server.builder().build_with(http).unwrap();
    let plain = call(model.clone(), ModelRequest::default()).await.unwrap();
    let (streamed, _) = stream(model, ModelRequest::default()).await;
    assert_eq!(plain.message().text(), "hi");
    assert_eq!(streamed.unwrap().message().text(), "hi");
    let seen = server.seen();
    assert_eq!(seen.len(), 5);
    assert!(
        seen.iter()
            .all(|seen| seen.header("x-tenant") == Some("blue"))
    );
    assert_eq!(seen[0].body, seen[2].body);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_under_it_is_a_timeout() {
    let never = service_fn(|_: Request<RequestBody>| {
        std::future::pending::<Result<Response<Full<Bytes>>, BoxError>>()
    });
    let http = ServiceBuilder::new()
        .timeout(Duration::from_secs(30))
        .service(never);
    let model = OpenAi::builder()
        .base_url("http://localhost")
        .api_key("")
        .model("m");
    let error = call(model.build_with(http).unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

/// A service that must be polled ready before each call, and whose clones start unready.
struct Probe {
    ready: bool,
    polls: Arc<AtomicUsize>,
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            polls: self.polls.clone(),
        }
    }
}

impl Service<Request<RequestBody>> for Probe {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.polls.fetch_add(1, Ordering::Relaxed) == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        ready(Ok(Response::new(Full::from(
            r#"{"choices":[{"message":{"content":"ok"}}]}"#,
        ))))
    }
}

#[tokio::test]
async fn readiness_is_the_http_services() {
    let polls = Arc::new(AtomicUsize::new(0));
    let http = Probe {
        ready: false,
        polls: polls.clone(),
    };
    let builder = OpenAi::builder()
        .base_url("http://localhost")
        .api_key("")
        .model("m");
    let mut model = builder.build_with(http).unwrap();
    for _ in 0..2 {
        let answer = model.ready().await.unwrap().call(ModelRequest::default());
        assert_eq!(answer.await.unwrap().message().text(), "ok");
    }
    assert_eq!(polls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn an_http_service_that_is_never_ready_fails_the_call() {
    #[derive(Clone)]
    struct Shut;
    impl Service<Request<RequestBody>> for Shut {
        type Response = Response<Full<Bytes>>;
        type Error = BoxError;
        type Future = Ready<Result<Self::Response, BoxError>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err("the pool is shut".into()))
        }
        fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
            unreachable!()
        }
    }
    let builder = OpenAi::builder()
        .base_url("http://localhost")
        .api_key("")
        .model("m");
    let error = call(builder.build_with(Shut).unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.message().contains("the pool is shut"), "{error}");
}

#[test]
fn it_is_a_model() {
    fn is_a_model<M: ModelService>(_: &M) {}
    is_a_model(
        &OpenAi::builder()
            .base_url("http://localhost")
            .build()
            .unwrap(),
    );
}
