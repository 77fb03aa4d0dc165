//! A server that says nothing, under paused time: a limit ends the call, and a server that goes on
//! is not cut.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tower_agent::{ErrorKind, ModelRequest, ModelResponse, Result};
use tower_agent_providers::openai::OpenAi;
use tower_agent_providers::{HttpClient, TimeLimits};

use crate::server::{Reply, delta, events, finished, read_request, unfinished};
use test_support::call;

const MINUTE: Duration = Duration::from_secs(60);

/// Calls a server that waits before each piece of its reply, and then for ever.
async fn answer(
    reply: Reply,
    pause: Duration,
    limits: TimeLimits,
) -> (Result<ModelResponse>, Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await.unwrap();
        for piece in reply {
            sleep(pause).await;
            socket.write_all(&piece).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    let model = OpenAi::builder().base_url(base_url).api_key("").model("m");
    let client = HttpClient::builder().time_limits(limits).build().unwrap();
    let start = Instant::now();
    let answer = call(model.build_with(client).unwrap(), ModelRequest::default()).await;
    server.abort();
    (answer, start.elapsed())
}

/// A server that accepts no connection: its queue is full.
#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_come_is_an_error_by_default() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(connection) = timeout(MINUTE, TcpStream::connect(address)).await {
        queue.push(connection.unwrap());
        assert!(queue.len() < 100, "the queue has no end");
    }
    let builder = OpenAi::builder().base_url(format!("http://{address}/v1"));
    let client = HttpClient::new().unwrap();
    let model = builder.api_key("").model("m").build_with(client).unwrap();
    let start = Instant::now();
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.is_retryable());
    assert!(error.message().contains("does not respond"), "{error}");
    let time = start.elapsed();
    assert!(time >= Duration::from_secs(10) && time < MINUTE, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_a_timeout_by_default() {
    let (answer, time) = answer(Vec::new(), MINUTE, TimeLimits::default()).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        error.message().contains("sent no response within 600s"),
        "{error}"
    );
    assert!(time >= 10 * MINUTE && time < 11 * MINUTE, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_in_the_middle_is_a_timeout_by_default() {
    let hello = format!("data: {}\n\n", delta(json!({ "content": "Hel" })));
    let (answer, time) = answer(unfinished([hello]), MINUTE, TimeLimits::default()).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("stopped in the middle"), "{error}");
    assert!(time >= 7 * MINUTE && time < 8 * MINUTE, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_on_slowly_is_not_cut() {
    let chunks = [
        delta(json!({ "content": "Hel" })),
        delta(json!({ "content": "lo." })),
        finished("stop"),
    ];
    let (answer, time) = answer(events(&chunks), 4 * MINUTE, TimeLimits::default()).await;
    assert_eq!(answer.unwrap().text(), "Hello.");
    assert!(time >= 20 * MINUTE, "{time:?}");
}

/// A server that keeps the connection alive, and says nothing.
#[tokio::test(start_paused = true)]
async fn a_response_that_does_not_end_is_a_timeout_by_default() {
    let pings = (0..100).map(|_| ": ping\n\n".to_owned());
    let (answer, time) = answer(unfinished(pings), 4 * MINUTE, TimeLimits::default()).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        error.message().contains("did not end within 3600s"),
        "{error}"
    );
    assert!(time >= 60 * MINUTE && time < 61 * MINUTE, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_can_be_set_and_left_out() {
    let mut limits = TimeLimits::default();
    limits.head = Some(Duration::from_secs(5));
    let (answer_in_time, _) = answer(Vec::new(), MINUTE, limits).await;
    assert_eq!(answer_in_time.unwrap_err().kind(), ErrorKind::Timeout);
    limits.head = None;
    limits.idle = None;
    limits.whole = None;
    let chunks = [delta(json!({ "content": "Hi." })), finished("stop")];
    let (late, _) = answer(events(&chunks), 60 * MINUTE, limits).await;
    assert_eq!(late.unwrap().text(), "Hi.");
}
