//! A provider that says a number of words, and needs no key.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_agent::BoxError;

use crate::settings::MockSettings;

/// Starts a mock at a free port of this machine, and returns its URL.
pub(crate) async fn start(settings: MockSettings) -> Result<String, BoxError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(async move {
        if let Err(error) = serve(listener, settings).await {
            eprintln!("the mock has ended: {error}");
        }
    });
    Ok(url)
}

pub(crate) async fn serve(listener: TcpListener, settings: MockSettings) -> io::Result<()> {
    // Each piece as it comes.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    axum::serve(listener, app(settings)).await
}

fn app(settings: MockSettings) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(answer))
        .with_state(settings)
}

async fn answer(State(settings): State<MockSettings>, Json(request): Json<Value>) -> Response {
    wait(settings.first).await;
    let words = settings.words;
    let usage = json!({
        "prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words,
    });
    if request["stream"] != true {
        wait(settings.step * words as u32).await;
        return Json(json!({
            "id": "chatcmpl-mock", "object": "chat.completion", "created": 0, "model": "mock",
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": "word ".repeat(words) },
                "finish_reason": "stop",
            }],
            "usage": usage,
        }))
        .into_response();
    }
    let chunk = |delta: Value, finish_reason: Value| {
        line(&json!({
            "id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0, "model": "mock",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        }))
    };
    let word = chunk(json!({ "content": "word " }), Value::Null);
    let words = stream::iter(0..words).then(move |number| {
        let word = word.clone();
        async move {
            if number > 0 {
                wait(settings.step).await;
            }
            word
        }
    });
    let end = chunk(json!({}), json!("stop"));
    let usage = line(&json!({
        "id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0, "model": "mock",
        "choices": [], "usage": usage,
    }));
    let end = stream::iter([end, usage, Bytes::from_static(b"data: [DONE]\n\n")]);
    let body = Body::from_stream(words.chain(end).map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn line(event: &Value) -> Bytes {
    format!("data: {event}\n\n").into()
}
