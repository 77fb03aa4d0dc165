//! Layers of tower-http under the provider, around each HTTP call.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt, stream};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tower::{BoxError, Layer, ServiceBuilder, service_fn};
use tower_agent::agent::BoxAgent;
use tower_agent::model::BoxModel;
use tower_agent::{Error, ErrorKind};
use tower_agent_providers::openai::{Chat, OpenAi};
use tower_agent_providers::{HttpClient, HttpModelBuilder, RequestBody};
use tower_http::ServiceBuilderExt;
use tower_http::auth::AddAuthorizationLayer;
use tower_http::decompression::DecompressionLayer;
use tower_http::map_response_body::MapResponseBodyLayer;
use tower_http::request_id::{MakeRequestUuid, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::SetRequestHeaderLayer;
use tower_http::timeout::{ResponseBodyDeadlineLayer, ResponseBodyTimeoutLayer, TimeoutLayer};
use tower_http::trace::TraceLayer;

use crate::server::{Reply, Server, delta, event, events, finished, json, says};
use test_support::runs::{WAYS, of_model, run, secs};

type Call = Request<RequestBody>;

/// An agent on this HTTP service.
macro_rules! agent_on {
    ($builder:expr, $http:expr) => {
        of_model(BoxModel::new($builder.build_with($http).unwrap()))
    };
}

fn reply(streamed: bool, text: &str) -> Reply {
    if streamed {
        events(&[delta(json!({ "content": text })), finished("stop")])
    } else {
        says(text)
    }
}

#[tokio::test]
async fn headers_ids_and_keys_are_added_to_each_call() {
    for streamed in WAYS {
        let server = Server::start([reply(streamed, "done"), reply(streamed, "done")]).await;
        // Set if a logged header would show its value.
        let shown = Arc::new(Mutex::new(Vec::new()));
        let logged = shown.clone();
        let http = ServiceBuilder::new()
            .layer(AddAuthorizationLayer::bearer("secret"))
            .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
            .layer(SetRequestHeaderLayer::overriding(
                HeaderName::from_static("x-tenant"),
                HeaderValue::from_static("blue"),
            ))
            .layer(SetSensitiveRequestHeadersLayer::new([
                header::AUTHORIZATION,
            ]))
            .layer(
                TraceLayer::new_for_http().on_request(move |call: &Call, _: &tracing::Span| {
                    logged.lock().unwrap().push(format!("{:?}", call.headers()));
                }),
            )
            .service(HttpClient::new().unwrap());
        let agent = agent_on!(server.builder(), http);
        for _ in 0..2 {
            assert_eq!(run(&agent, streamed).await.unwrap().text(), "done");
        }
        let seen = server.seen();
        for seen in &seen {
            assert_eq!(seen.header("authorization"), Some("Bearer secret"));
            assert_eq!(seen.header("x-tenant"), Some("blue"));
        }
        let [one, other] = [0, 1].map(|call: usize| seen[call].header("x-request-id").unwrap());
        assert_ne!(one, other);
        let shown = shown.lock().unwrap();
        assert!(shown.len() == 2 && shown.iter().all(|headers| headers.contains("Sensitive")));
        assert!(!shown.iter().any(|headers| headers.contains("secret")));
    }
}

/// The pieces of a reply, each flushed, under one gzip stream.
fn gzipped(streamed: bool) -> Reply {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let (kind, texts) = if streamed {
        let chunks = ["do", "ne"].map(|text| event(&delta(json!({ "content": text }))));
        let end = [event(&finished("stop")), "data: [DONE]\n\n".into()];
        ("text/event-stream", chunks.into_iter().chain(end).collect())
    } else {
        let message = json!({ "role": "assistant", "content": "done" });
        let answer = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] });
        ("application/json", vec![answer.to_string()])
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    let mut reply = vec![head.into_bytes()];
    let mut push = |piece: Vec<u8>| {
        let size = format!("{:x}\r\n", piece.len());
        reply.push([size.as_bytes(), &piece, b"\r\n"].concat());
    };
    for text in texts {
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.flush().unwrap();
        push(std::mem::take(encoder.get_mut()));
    }
    push(encoder.finish().unwrap());
    reply.push(b"0\r\n\r\n".to_vec());
    reply
}

#[tokio::test]
async fn a_compressed_answer_is_read_as_it_comes() {
    for streamed in WAYS {
        let server = Server::start([gzipped(streamed)]).await;
        let http = ServiceBuilder::new()
            .layer(DecompressionLayer::new())
            .service(HttpClient::new().unwrap());
        let agent = agent_on!(server.builder(), http);
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "done");
        assert!(
            server
                .only()
                .header("accept-encoding")
                .unwrap()
                .contains("gzip")
        );
    }
}

#[tokio::test]
async fn a_status_under_these_layers_keeps_its_kind() {
    for streamed in WAYS {
        let body = json!({ "error": { "message": "slow down" } });
        let server = Server::start([json(429, &body)]).await;
        let http = ServiceBuilder::new()
            .layer(TraceLayer::new_for_http())
            .layer(DecompressionLayer::new())
            .service(HttpClient::new().unwrap());
        let error = run(&agent_on!(server.builder(), http), streamed)
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::RateLimited, "slow down")
        );
    }
}

type Half = UnsyncBoxBody<Bytes, BoxError>;

/// Half an answer, and then nothing.
fn half() -> Response<Half> {
    let frame = Frame::data(Bytes::from(event(&delta(
        json!({ "content": "half of it" }),
    ))));
    let body = StreamBody::new(stream::iter([Ok(frame)]).chain(stream::pending()));
    let mut response = Response::new(UnsyncBoxBody::new(body));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn builder() -> HttpModelBuilder<Chat> {
    OpenAi::builder()
        .base_url("http://localhost")
        .api_key("")
        .model("m")
}

/// It bounds the head alone, and answers with a status. It needs a body that has a default: a
/// boxed one.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_tower_http_is_a_timeout_by_its_status() {
    for streamed in WAYS {
        let never =
            service_fn(|_: Call| std::future::pending::<Result<Response<Half>, BoxError>>());
        let layer = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, secs(1));
        let error = run(&agent_on!(builder(), layer.layer(never)), streamed)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
}

#[tokio::test]
async fn it_fits_the_default_client_once_the_body_is_boxed() {
    for streamed in WAYS {
        let server = Server::start([reply(streamed, "done")]).await;
        let http = ServiceBuilder::new()
            .layer(TimeoutLayer::with_status_code(
                StatusCode::GATEWAY_TIMEOUT,
                secs(60),
            ))
            .layer(MapResponseBodyLayer::new(UnsyncBoxBody::new))
            .service(HttpClient::new().unwrap());
        let agent = agent_on!(server.builder(), http);
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "done");
    }
}

async fn fails_in_time(agent: BoxAgent, kind: ErrorKind) {
    for streamed in WAYS {
        let start = tokio::time::Instant::now();
        let error = run(&agent, streamed).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, true));
        assert_eq!(start.elapsed(), secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_or_takes_too_long_is_a_broken_connection() {
    let http = service_fn(async |_: Call| Ok::<_, BoxError>(half()));
    let stalls = ResponseBodyTimeoutLayer::new(secs(1)).layer(http);
    fails_in_time(agent_on!(builder(), stalls), ErrorKind::Connection).await;
    let http = service_fn(async |_: Call| Ok::<_, BoxError>(half()));
    let late = ResponseBodyDeadlineLayer::new(secs(1)).layer(http);
    fails_in_time(agent_on!(builder(), late), ErrorKind::Connection).await;
}

/// Our own error keeps its kind from wherever it comes.
#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_a_timeout_where_its_error_is_made_one() {
    fn ours<B>(body: B) -> impl Body<Data = Bytes, Error = Error>
    where
        B: Body<Data = Bytes, Error = BoxError>,
    {
        body.map_err(|error| Error::new(ErrorKind::Timeout, error.to_string()))
    }
    let http = ServiceBuilder::new()
        .map_response_body(ours)
        .layer(ResponseBodyTimeoutLayer::new(secs(1)))
        .service(service_fn(async |_: Call| Ok::<_, BoxError>(half())));
    fails_in_time(agent_on!(builder(), http), ErrorKind::Timeout).await;
}

/// Around the model instead, tower's own bounds the whole of it.
#[tokio::test(start_paused = true)]
async fn towers_own_timeout_under_the_provider_bounds_the_head_and_around_it_the_whole() {
    let http = || service_fn(async |_: Call| Ok::<_, BoxError>(half()));
    let under = tower::timeout::TimeoutLayer::new(secs(1)).layer(http());
    let around =
        tower::timeout::TimeoutLayer::new(secs(3)).layer(builder().build_with(under).unwrap());
    for streamed in WAYS {
        let start = tokio::time::Instant::now();
        let error = run(&of_model(BoxModel::new(around.clone())), streamed)
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), start.elapsed()),
            (ErrorKind::Timeout, secs(3))
        );
    }
}
