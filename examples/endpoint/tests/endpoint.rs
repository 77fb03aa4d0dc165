//! The endpoint over HTTP, on the loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../chat.rs"]
mod chat;
#[path = "../service.rs"]
mod service;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures::future::pending;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};
use tower_agent::model::ModelService;
use tower_agent::stream::Delta;
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, ModelResponse, Result};
use tower_agent_test::{ScriptedModel, Turn};

fn agent(model: impl ModelService) -> Agent {
    Agent::builder(model).build().unwrap()
}

/// A server that runs until it is told to stop.
struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(agent: Agent) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or_default() };
        let served = tokio::spawn(service::serve(listener, agent, stopped));
        Self {
            address,
            stop,
            served,
        }
    }

    /// Asks, on a connection of its own. It is closed when the answer is dropped.
    async fn ask(&self, question: String) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut client, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("/chat").header("host", "localhost");
        client
            .send_request(request.body(question).unwrap())
            .await
            .unwrap()
    }
}

/// Reads until the text has come.
async fn read_until(body: &mut Incoming, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let frame = body.frame().await.unwrap().unwrap();
        read += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    read
}

async fn whole(body: Incoming) -> String {
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A model that says one word, and another once it is told to go on.
fn halting(go_on: Arc<Notify>) -> impl ModelService {
    service_fn(move |request: ModelRequest| {
        let go_on = go_on.clone();
        async move {
            let mut attempt = request.delta_sender().unwrap().open();
            attempt.send(Delta::Text("one ".to_owned())).await?;
            go_on.notified().await;
            attempt.send(Delta::Text("two".to_owned())).await?;
            Ok::<ModelResponse, Error>(attempt.finish().await?.into())
        }
    })
}

#[tokio::test]
async fn the_answer_comes_piece_by_piece() {
    let go_on = Arc::new(Notify::new());
    let server = Server::start(agent(halting(go_on.clone()))).await;

    let response = server.ask("count".to_owned()).await;

    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    // The model says the second word only after the first has been read.
    read_until(&mut body, "one ").await;
    go_on.notify_one();
    let rest = whole(body).await;
    assert!(rest.contains("two"), "{rest}");
    let end = "event: end\ndata: {\"reason\":\"completed\"}\n\n";
    assert!(rest.ends_with(end), "{rest}");
}

#[tokio::test]
async fn a_failure_before_the_first_output_is_a_status_without_its_text() {
    let busy = Error::new(ErrorKind::RateLimited, "account 4711 of host 10.0.0.7")
        .with_retry_after(Duration::from_millis(1500));
    let server = Server::start(agent(ScriptedModel::new([Turn::error(busy)]))).await;

    let response = server.ask("?".to_owned()).await;

    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "2");
    let body = whole(response.into_body()).await;
    assert_eq!(body, r#"{"error":"rate_limited"}"#);
}

#[tokio::test]
async fn a_failure_after_it_is_the_last_event() {
    let cut = Error::new(ErrorKind::Connection, "host 10.0.0.7 is gone");
    let turn = Turn::from_text("half an answer").failing_after(1, cut);
    let server = Server::start(agent(ScriptedModel::new([turn]))).await;

    let response = server.ask("?".to_owned()).await;

    assert_eq!(response.status(), StatusCode::OK);
    let body = whole(response.into_body()).await;
    let end = "event: error\ndata: {\"error\":\"connection\"}\n\n";
    assert!(body.ends_with(end), "{body}");
    assert!(!body.contains("10.0.0.7"), "{body}");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_run() {
    let (dropped, was_dropped) = oneshot::channel::<()>();
    let dropped = Arc::new(std::sync::Mutex::new(Some(dropped)));
    let model = service_fn(move |request: ModelRequest| {
        let dropped = dropped.lock().unwrap().take();
        async move {
            // Its receiver is told when the call is dropped.
            let _dropped = dropped;
            let mut attempt = request.delta_sender().unwrap().open();
            attempt.send(Delta::Text("one ".to_owned())).await?;
            pending::<Result<ModelResponse>>().await
        }
    });
    let server = Server::start(agent(model)).await;
    let mut body = server.ask("?".to_owned()).await.into_body();
    read_until(&mut body, "one ").await;

    drop(body);

    was_dropped.await.unwrap_err();
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_lets_a_run_end() {
    let go_on = Arc::new(Notify::new());
    let server = Server::start(agent(halting(go_on.clone()))).await;
    let mut body = server.ask("count".to_owned()).await.into_body();
    read_until(&mut body, "one ").await;

    server.stop.send(()).unwrap();
    go_on.notify_one();

    assert!(whole(body).await.contains("event: end"));
    server.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_run_that_does_not_end_is_ended_after_a_while() {
    let server = Server::start(agent(halting(Arc::default()))).await;
    let mut body = server.ask("count".to_owned()).await.into_body();
    read_until(&mut body, "one ").await;

    // From here on the time passes as soon as everything waits.
    tokio::time::pause();
    server.stop.send(()).unwrap();

    let rest = whole(body).await;
    let end = "event: error\ndata: {\"error\":\"cancelled\"}\n\n";
    assert!(rest.ends_with(end), "{rest}");
    server.served.await.unwrap().unwrap();
}

/// Asks without a server.
async fn route(agent: Agent, question: String) -> StatusCode {
    let stop = CancellationToken::new();
    let routes = service::routes(chat::Chat { agent, stop });
    let request = Request::post("/chat").body(Body::from(question));
    let response = routes.oneshot(request.unwrap()).await.unwrap();
    response.status()
}

#[tokio::test(start_paused = true)]
async fn a_model_that_says_nothing_is_a_timeout() {
    let silent = agent(ScriptedModel::new([Turn::pending()]));
    let status = route(silent, "?".to_owned()).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn a_question_that_is_too_long_is_not_asked() {
    let model = ScriptedModel::new([]);
    let status = route(agent(model.clone()), "?".repeat(1 << 20)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_panic_of_the_model_is_a_failed_provider() {
    let model = service_fn(|_: ModelRequest| async { panic!("a bug") as Result<ModelResponse> });
    let status = route(agent(model), "?".to_owned()).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
}
