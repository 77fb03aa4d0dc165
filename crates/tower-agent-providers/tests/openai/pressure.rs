//! A reader that does not read stops the server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tower::{ServiceExt, service_fn};
use tower_agent::stream::{EventKind, channel};
use tower_agent::{BoxError, ModelRequest};
use tower_agent_providers::RequestBody;
use tower_agent_providers::openai::OpenAi;

use crate::server::{delta, event, finished, read_request};
use test_support::{deltas, text};

/// A body that counts how many of its frames were taken, and is always ready with the next.
struct Counted {
    frames: VecDeque<Bytes>,
    taken: Arc<AtomicUsize>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(self.frames.pop_front().map(|data| Ok(Frame::data(data))))
    }
}

#[tokio::test]
async fn the_body_is_read_only_as_deltas_are() {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let http = service_fn(move |_: Request<RequestBody>| {
        let chunks = (0..50).map(|i| delta(json!({ "content": i.to_string() })));
        let frames = chunks
            .chain([finished("stop")])
            .map(|chunk| Bytes::from(event(&chunk)));
        let body = Counted {
            frames: frames.collect(),
            taken: count.clone(),
        };
        let response = Response::builder().header("content-type", "text/event-stream");
        std::future::ready(response.body(body).map_err(BoxError::from))
    });
    let builder = OpenAi::builder()
        .base_url("http://localhost")
        .api_key("")
        .model("m");
    let (sink, mut events) = channel(4);
    let request = ModelRequest::default().with_delta_sender(sink);
    let mut answer = builder.build_with(http).unwrap().oneshot(request);
    assert!((&mut answer).now_or_never().is_none());
    assert!(matches!(
        events.next().await.unwrap().kind,
        EventKind::TextStart { .. }
    ));
    for read in 0..40 {
        // Polling it often makes it no more eager.
        for _ in 0..3 {
            assert!((&mut answer).now_or_never().is_none());
        }
        // Four deltas wait in the queue, and a fifth waits to be sent.
        assert_eq!(taken.load(Ordering::Relaxed), read + 5);
        assert_eq!(deltas(events.next().await), [text(&read.to_string())]);
    }
    let (response, rest) = futures::join!(answer, events.count());
    assert_eq!(response.unwrap().message().text().len(), 10 + 40 * 2);
    assert_eq!(rest, 10 + 1, "ten deltas, and the end of the text");
}

/// So much no socket holds.
const CHUNKS: usize = 1024;
const CHUNK: usize = 64 * 1024;

async fn pour(listener: TcpListener, written: Arc<AtomicUsize>) {
    let (mut socket, _) = listener.accept().await.unwrap();
    read_request(&mut socket).await.unwrap();
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let chunk = event(&delta(json!({ "content": "x".repeat(CHUNK) })));
    for _ in 0..CHUNKS {
        socket.write_all(chunk.as_bytes()).await.unwrap();
        written.fetch_add(1, Ordering::Relaxed);
    }
    socket.write_all(b"data: [DONE]\n\n").await.unwrap();
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let written = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(pour(listener, written.clone()));
    let model = OpenAi::builder()
        .base_url(base_url)
        .api_key("")
        .model("m")
        .max_response(2 * CHUNKS * CHUNK)
        .build()
        .unwrap();
    let (sink, mut events) = channel(1);
    let answer = tokio::spawn(model.oneshot(ModelRequest::default().with_delta_sender(sink)));
    assert!(matches!(
        events.next().await.unwrap().kind,
        EventKind::TextStart { .. }
    ));
    assert_eq!(deltas(events.next().await), [text(&"x".repeat(CHUNK))]);
    // Everything runs on this thread, so all that can happen happens while this yields.
    let mut before = 0;
    let mut idle = 0;
    while idle < 10_000 {
        tokio::task::yield_now().await;
        let now = written.load(Ordering::Relaxed);
        idle = if now == before { idle + 1 } else { 0 };
        before = now;
    }
    assert!(
        before < CHUNKS / 2,
        "the server wrote {before} chunks that nobody read"
    );
    assert!(!server.is_finished() && !answer.is_finished());
    let rest = deltas(events.collect::<Vec<_>>().await).len();
    assert_eq!(rest, CHUNKS - 1);
    let response = answer.await.unwrap().unwrap();
    assert_eq!(response.message().text().len(), CHUNKS * CHUNK);
    server.await.unwrap();
}
