//! Behind the layers that a server stands behind.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use http::{HeaderName, Method, Request, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::json;
use tower::ServiceExt;
use tower::limit::ConcurrencyLimitLayer;
use tower_agent::Agent;
use tower_agent::Request as _;
use tower_agent::callback::before_agent;
use tower_agent_agui::AgUi;
use tower_agent_test::{ScriptedModel, Turn};
use tower_http::auth::AddAuthorizationLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{
    MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;
use tracing::{Instrument, Span};
use tracing_subscriber::util::SubscriberInitExt;

use super::client::{post, send};
use super::{Served, agent, app, input, rules};
use crate::watched::Watched;

fn greeter() -> AgUi {
    AgUi::new(agent([Turn::from_text("hi")]))
}

/// One that has so many answers.
fn greeters(answers: usize) -> AgUi {
    AgUi::new(agent((0..answers).map(|_| Turn::from_text("hi"))))
}

async fn behind<L>(server: AgUi, layer: L) -> Served
where
    L: tower::Layer<axum::routing::Route> + Clone + Send + Sync + 'static,
    L::Service: tower::Service<axum::extract::Request> + Clone + Send + Sync + 'static,
    <L::Service as tower::Service<axum::extract::Request>>::Response: axum::response::IntoResponse,
    <L::Service as tower::Service<axum::extract::Request>>::Error: Into<std::convert::Infallible>,
    <L::Service as tower::Service<axum::extract::Request>>::Future: Send,
{
    app(Router::new().route_service("/agent", server).layer(layer)).await
}

#[tokio::test]
async fn cors_answers_the_preflight_and_opens_the_events() {
    let cors = CorsLayer::new()
        .allow_origin(["https://app.example".parse().unwrap()])
        .allow_methods([Method::POST])
        .allow_headers([http::header::CONTENT_TYPE]);
    let served = behind(greeter(), cors).await;
    let preflight = Request::options("/agent")
        .header("host", "localhost")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type")
        .body(http_body_util::Empty::new())
        .unwrap();
    let reply = send(&served, preflight).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(reply.header("access-control-allow-methods"), Some("POST"));
    assert_eq!(
        reply.header("access-control-allow-headers"),
        Some("content-type")
    );

    let mut request = post(input().to_string());
    request
        .headers_mut()
        .insert("origin", "https://app.example".parse().unwrap());
    let reply = send(&served, request).await;
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    rules::check("t", "r", &reply.events().await).unwrap();
}

/// By default it leaves events alone, which are too small to gain and too urgent to wait.
#[tokio::test]
async fn compression_leaves_events_alone_unless_it_is_made_to() {
    let asks = || {
        let mut request = post(input().to_string());
        request
            .headers_mut()
            .insert("accept-encoding", "gzip".parse().unwrap());
        request
    };
    let watched = Watched::default();
    let server = AgUi::new(watched.agent().build().unwrap());
    let served = behind(server, CompressionLayer::new()).await;
    let mut reply = send(&served, asks()).await;
    assert_eq!(reply.header("content-encoding"), None);
    // The model has not ended, and never will: what has come was not kept back.
    let first = reply.next().await.unwrap();
    assert!(first.starts_with(b"data: {\"type\":\"RUN_STARTED\""));
    assert_eq!(watched.alive(), 1);
    drop(reply);

    // A front end that asks for it, of a server that insists, still gets every event.
    let layer = CompressionLayer::new().compress_when(SizeAbove::new(0));
    let served = behind(greeter(), layer).await;
    let reply = send(&served, asks()).await;
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    let (mut text, bytes) = (String::new(), reply.bytes().await);
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_string(&mut text)
        .unwrap();
    rules::check("t", "r", &super::client::parse(&text)).unwrap();
}

/// The timeout is one of the response's head: a run may take as long as it takes.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_request_does_not_cut_a_run_short() {
    let turn = Turn::from_text("late").latency(Duration::from_secs(600));
    let timeout =
        TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(1));
    let router = Router::new()
        .route_service("/agent", AgUi::new(agent([turn])))
        .layer(timeout);
    let request = post(input().to_string()).map(axum::body::Body::new);
    let response = router.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    assert!(String::from_utf8_lossy(&bytes).contains("RUN_FINISHED"));
}

#[tokio::test]
#[expect(clippy::result_large_err, reason = "what the layer asks for")]
async fn a_request_without_the_right_header_does_not_reach_the_agent() {
    let watched = Watched::default();
    let server = AgUi::new(watched.agent().build().unwrap());
    let guard = ValidateRequestHeaderLayer::custom(|request: &mut axum::extract::Request| {
        match request.headers().get("authorization") {
            Some(value) if value == "Bearer secret" => Ok(()),
            _ => Err(axum::response::IntoResponse::into_response(
                StatusCode::UNAUTHORIZED,
            )),
        }
    });
    let served = behind(server, guard.clone()).await;
    assert_eq!(
        send(&served, post(input().to_string())).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(watched.calls(), 0);

    let served = behind(
        greeter(),
        tower::ServiceBuilder::new()
            .layer(AddAuthorizationLayer::bearer("secret"))
            .layer(guard),
    )
    .await;
    assert_eq!(
        send(&served, post(input().to_string())).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_limit_of_the_body_outside_is_413_as_the_servers_own() {
    let watched = Watched::default();
    let server = AgUi::new(watched.agent().build().unwrap());
    let served = behind(server, RequestBodyLimitLayer::new(200)).await;
    let mut large = input();
    large["forwardedProps"] = json!("x".repeat(500));
    let reply = send(&served, post(large.to_string())).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    // In chunks the layer finds out while the server reads.
    let bytes = bytes::Bytes::from(large.to_string());
    let frames = futures::stream::iter([Ok::<_, std::io::Error>(http_body::Frame::data(bytes))]);
    let request = post("").map(|_| http_body_util::StreamBody::new(frames));
    assert_eq!(
        send(&served, request).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn the_id_of_a_request_reaches_the_agent_and_goes_back() {
    let ids = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = ids.clone();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_agent(before_agent(move |request| {
            let parts = request
                .context()
                .extension::<http::request::Parts>()
                .unwrap();
            let id = parts.extensions.get::<RequestId>().unwrap();
            seen.lock()
                .unwrap()
                .push(id.header_value().to_str().unwrap().to_owned());
        }))
        .build()
        .unwrap();
    let name = HeaderName::from_static("x-request-id");
    let layers = tower::ServiceBuilder::new()
        .layer(SetRequestIdLayer::new(name.clone(), MakeRequestUuid))
        .layer(PropagateRequestIdLayer::new(name));
    let served = behind(AgUi::new(agent), layers).await;
    let reply = send(&served, post(input().to_string())).await;
    let id = reply.header("x-request-id").unwrap().to_owned();
    reply.events().await;
    assert_eq!(*ids.lock().unwrap(), [id]);
}

/// Panics of the agent are the front end's `RUN_ERROR`: the layer has nothing left to catch.
#[tokio::test]
async fn traces_panic_catchers_and_limits_of_concurrency_stand_around_it() {
    let model = tower::service_fn(|_: tower_agent::ModelRequest| async {
        panic!("the model broke") as tower_agent::Result<tower_agent::ModelResponse>
    });
    let server = AgUi::new(Agent::builder(model).build().unwrap());
    let layers = tower::ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CatchPanicLayer::new())
        .layer(ConcurrencyLimitLayer::new(1));
    let served = behind(server, layers).await;
    for _ in 0..3 {
        let reply = send(&served, post(input().to_string())).await;
        assert_eq!(reply.status, StatusCode::OK);
        let events = reply.events().await;
        rules::check("t", "r", &events).unwrap();
        let last = events.last().unwrap();
        assert_eq!(last["type"], "RUN_ERROR");
        assert!(!last.to_string().contains("the model broke"), "{last}");
    }
}

/// Notes the span in which it is called, and the one in which its future is dropped.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Option<tracing::Id>>>>);

impl Spans {
    fn note(&self) {
        self.0.lock().unwrap().push(Span::current().id());
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        self.note();
    }
}

/// A layer ends with the response, whose body is the run.
#[tokio::test]
async fn a_run_stays_in_the_span_of_its_request_to_its_end_or_its_drop() {
    let _subscriber = tracing_subscriber::registry().set_default();
    for is_read in [true, false] {
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = seen.clone();
        let model = tower::service_fn(move |_: tower_agent::ModelRequest| {
            let spans = Spans(noted.clone());
            async move {
                spans.note();
                if !is_read {
                    std::future::pending::<()>().await;
                }
                tokio::task::yield_now().await;
                Ok::<_, tower_agent::Error>(tower_agent::ModelResponse::from_text("hi"))
            }
        });
        let server = AgUi::new(Agent::builder(model).build().unwrap());
        let span = tracing::info_span!("request");
        let request = post(input().to_string());
        let response = server.oneshot(request).instrument(span.clone()).await;
        let mut body = response.unwrap().into_body();
        if is_read {
            while body.frame().await.is_some() {}
        } else {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            while seen.lock().unwrap().is_empty() {
                let _ = std::pin::Pin::new(&mut body).poll_frame(&mut context);
                tokio::task::yield_now().await;
            }
        }
        drop(body);
        assert_eq!(*seen.lock().unwrap(), [span.id(), span.id()], "{is_read}");
    }
}

/// As a proxy does: one connection for many front ends, refusals among the runs.
#[tokio::test]
async fn one_connection_carries_a_hundred_requests_to_a_nested_server() {
    let nested = Router::new().fallback_service(greeters(100));
    let served = app(Router::new().nest("/api", nested)).await;
    let socket = tokio::net::TcpStream::connect(served.address)
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(socket);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    for number in 0..100 {
        let mut request = post(input().to_string());
        *request.uri_mut() = "/api/agent".parse().unwrap();
        let (method, status) = match number % 3 {
            0 => (Method::HEAD, StatusCode::METHOD_NOT_ALLOWED),
            1 => (Method::GET, StatusCode::BAD_REQUEST),
            _ => (Method::POST, StatusCode::OK),
        };
        *request.method_mut() = method.clone();
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{number}");
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap()
            .to_bytes();
        match method {
            Method::HEAD => assert!(body.is_empty()),
            Method::GET => assert!(body.starts_with(b"{\"error\"")),
            _ => {
                let text = std::str::from_utf8(&body).unwrap();
                rules::check("t", "r", &super::client::parse(text)).unwrap();
            }
        }
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

/// A server that is asked to stop lets the runs that it has begun come to their end.
#[tokio::test]
async fn a_graceful_shutdown_waits_for_the_streams_that_are_open() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let held = tower::service_fn(move |_: tower_agent::ModelRequest| {
        let mut gone = gone.clone();
        async move {
            drop(gone.wait_for(|gone| *gone).await);
            Ok::<_, tower_agent::Error>(tower_agent::ModelResponse::from_text("done"))
        }
    });
    let agui = AgUi::new(Agent::builder(held).build().unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ended, mut end) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let server = axum::serve(listener, Router::new().route_service("/agent", agui));
        server
            .with_graceful_shutdown(async { drop(stopped.await) })
            .await
            .unwrap();
        ended.send(()).unwrap();
    });
    let served = Served { address, task };
    let mut reply = send(&served, post(input().to_string())).await;
    let mut text = String::from_utf8(reply.next().await.unwrap().to_vec()).unwrap();
    stop.send(()).unwrap();
    // Nobody new is let in, and who is in is not thrown out.
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(end.try_recv().is_err());
    go.send(true).unwrap();
    text.push_str(&String::from_utf8(reply.bytes().await).unwrap());
    rules::check("t", "r", &super::client::parse(&text)).unwrap();
    assert!(text.contains("RUN_FINISHED"));
    end.await.unwrap();
}
