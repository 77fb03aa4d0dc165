//! Servers that are not reached, and connections that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http_body_util::Full;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::model::ModelTarget;
use tower_agent::stream::channel;
use tower_agent::{BoxError, Error, ErrorKind, ModelRequest};
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_providers::openai::OpenAi;
use tower_agent_providers::{HttpClient, RequestBody};

use crate::server::{delta, event, events, finished, read_request, says, unfinished};
use test_support::process::free_port;
use test_support::{call, deltas, stream, text};

async fn fails_at(base_url: &str) -> Error {
    let model = OpenAi::builder()
        .base_url(base_url)
        .api_key("")
        .model("m")
        .build()
        .unwrap();
    call(model, ModelRequest::default()).await.unwrap_err()
}

#[tokio::test]
async fn nobody_listens() {
    let error = fails_at(&format!("http://127.0.0.1:{}/v1", free_port())).await;
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(
        error.message().starts_with("the connection was refused: "),
        "{error}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn nobody_has_that_name() {
    let error = fails_at("http://nowhere.invalid/v1").await;
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(
        error
            .message()
            .starts_with("the host name could not be resolved: "),
        "{error}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn the_server_hangs_up() {
    let server = crate::server::Server::start([vec![]]).await;
    let error = fails_at(&server.base_url).await;
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(
        error.message().starts_with("the HTTP call failed: "),
        "{error}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn the_server_does_not_speak_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        let _ = socket.read(&mut [0; 1024]).await;
    };
    let (error, ()) = futures::join!(fails_at(&base_url), server);
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.message().starts_with("TLS failed: "), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn errors_that_have_a_kind_keep_it() {
    type Made = fn() -> BoxError;
    let made: [(Made, ErrorKind); 4] = [
        (
            || tower::timeout::error::Elapsed::new().into(),
            ErrorKind::Timeout,
        ),
        (
            || tower::load_shed::error::Overloaded::new().into(),
            ErrorKind::Overloaded,
        ),
        (|| Error::abort("no more").into(), ErrorKind::Aborted),
        (
            || std::io::Error::other(Error::abort("no more")).into(),
            ErrorKind::Aborted,
        ),
    ];
    for (made, kind) in made {
        let http = service_fn(move |_: http::Request<RequestBody>| async move {
            Err::<http::Response<Full<bytes::Bytes>>, _>(made())
        });
        let builder = OpenAi::builder()
            .base_url("http://localhost")
            .api_key("")
            .model("m");
        let error = call(builder.build_with(http).unwrap(), ModelRequest::default()).await;
        assert_eq!(error.unwrap_err().kind(), kind);
    }
}

/// A server that writes half a stream, and then waits until its connection is closed.
async fn half(listener: TcpListener) {
    let (mut socket, _) = listener.accept().await.unwrap();
    read_request(&mut socket).await.unwrap();
    for piece in unfinished([event(&delta(json!({ "content": "Hel" })))]) {
        socket.write_all(&piece).await.unwrap();
    }
    // 0 is a closed connection, and so is an error; anything else would be another request.
    assert_eq!(socket.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_dropped_call_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(half(listener));
    let model = OpenAi::builder()
        .base_url(base_url)
        .api_key("")
        .model("m")
        .build()
        .unwrap();
    let (sink, events) = channel(4);
    let mut deltas = events
        .filter_map(async |event| deltas([event]).pop())
        .boxed();
    let mut answer = model.oneshot(ModelRequest::default().with_delta_sender(sink));
    let first = futures::future::select(&mut answer, deltas.next()).await;
    let futures::future::Either::Right((Some(first), _)) = first else {
        panic!("the call ended before its first delta");
    };
    assert_eq!(first, text("Hel"));
    assert!(!server.is_finished());
    drop(answer);
    server.await.unwrap();
}

/// The first connection stalls within its answer; the next one answers.
#[tokio::test]
async fn a_call_that_times_out_closes_its_connection_and_the_next_has_another() {
    let streamed = unfinished([event(&delta(json!({ "content": "Hel" })))]).concat();
    let plain = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
        content-length: 100\r\n\r\n{\"choices\":";
    for (begun, is_streamed) in [(streamed, true), (plain.to_vec(), false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (stalls, stalled) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await.unwrap();
            socket.write_all(&begun).await.unwrap();
            stalls.send(()).unwrap();
            // Closed, and no other request.
            assert_eq!(socket.read(&mut [0; 16]).await.unwrap_or(0), 0);
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await.unwrap();
            socket.write_all(&says("ok").concat()).await.unwrap();
        });
        let limit = CallTimeoutLayer::<ModelRequest>::new(Duration::from_secs(60));
        let builder = OpenAi::builder().base_url(base_url).api_key("").model("m");
        let model = builder.build_with(HttpClient::new().unwrap()).unwrap();
        let model = ServiceBuilder::new().layer(limit).service(model);
        let answer = tokio::spawn({
            let model = model.clone();
            async move {
                if is_streamed {
                    stream(model, ModelRequest::default()).await.0
                } else {
                    call(model, ModelRequest::default()).await
                }
            }
        });
        stalled.await.unwrap();
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        let error = answer.await.unwrap().unwrap_err();
        tokio::time::resume();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let next = call(model, ModelRequest::default()).await.unwrap();
        assert_eq!(next.text(), "ok");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_leaves_cancels_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(half(listener));
    let model = OpenAi::builder()
        .base_url(base_url)
        .api_key("")
        .model("m")
        .build()
        .unwrap();
    let (sink, chunks) = channel(4);
    drop(chunks);
    let error = call(model, ModelRequest::default().with_delta_sender(sink))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    server.await.unwrap();
}

/// A server that keeps its connections, and how many there were.
async fn keeps() -> (String, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let count = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                while read_request(&mut socket).await.is_some() {
                    let reply = events(&[delta(json!({ "content": "hi" })), finished("stop")]);
                    let text = String::from_utf8(reply.concat()).unwrap();
                    let text = text.replace("connection: close\r\n", "");
                    socket.write_all(text.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (base_url, connections)
}

async fn calls(models: impl Iterator<Item = OpenAi<HttpClient>>, connections: &AtomicUsize) {
    for model in models.take(50) {
        let (response, _) = stream(model, ModelRequest::default()).await;
        assert_eq!(response.unwrap().message().text(), "hi");
    }
    // The pool may open a second one before the first is back.
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < 5, "{connections} connections for 50 calls");
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_stream() {
    let (base_url, connections) = keeps().await;
    let builder = OpenAi::builder().base_url(base_url).api_key("").model("m");
    let model = builder.build_with(HttpClient::new().unwrap()).unwrap();
    calls(std::iter::repeat(model), &connections).await;
}

#[tokio::test]
async fn models_at_one_address_share_connections() {
    let (base_url, connections) = keeps().await;
    let builder = OpenAi::builder().base_url(base_url).api_key("").model("m");
    calls(
        std::iter::repeat_with(|| builder.clone().build().unwrap()),
        &connections,
    )
    .await;
}

#[tokio::test]
async fn a_server_that_stays_after_its_answer_does_not_hold_it_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await.unwrap();
        let pieces = [
            event(&delta(json!({ "content": "hi" }))),
            "data: [DONE]\n\n".into(),
        ];
        socket
            .write_all(&unfinished(pieces).concat())
            .await
            .unwrap();
        assert_eq!(socket.read(&mut [0; 16]).await.unwrap_or(0), 0);
    });
    let model = OpenAi::builder()
        .base_url(base_url)
        .api_key("")
        .model("m")
        .build()
        .unwrap();
    let (response, _) = stream(model, ModelRequest::default()).await;
    assert_eq!(response.unwrap().message().text(), "hi");
    server.await.unwrap();
}

#[tokio::test]
async fn a_layer_learns_which_model_was_called_even_if_nobody_answers() {
    let base_url = format!("http://127.0.0.1:{}/v1", free_port());
    let model = OpenAi::builder().base_url(base_url).api_key("").model("m");
    let target = ModelTarget::default();
    let mut request = ModelRequest::default();
    request.extensions_mut().insert(target.clone());
    call(model.build().unwrap(), request).await.unwrap_err();
    assert_eq!(
        (target.provider(), target.model().as_deref()),
        (Some("openai"), Some("m"))
    );
}
