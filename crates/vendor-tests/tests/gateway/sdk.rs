//! OpenAI's own client, in Python, in front of a provider that says what it was sent.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::stream;
use serde_json::{Value, json};
use test_support::process::is_installed;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::start;

/// The number of tests in `sdk.py`.
const TESTS: usize = 10;

/// The last request.
type Seen = Arc<Mutex<Value>>;

/// Starts a provider, and returns its address.
async fn provider() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/v1/chat/completions", post(answer))
        .route("/v1/seen", get(seen))
        .with_state(Seen::default());
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1")
}

async fn seen(State(seen): State<Seen>) -> Json<Value> {
    Json(seen.lock().unwrap().clone())
}

/// Thinks, and says hello, or calls the tool if the last words ask for it.
async fn answer(State(seen): State<Seen>, Json(request): Json<Value>) -> Response {
    *seen.lock().unwrap() = request.clone();
    let last = request["messages"].as_array().unwrap().last().unwrap();
    let words = last["content"].as_str().unwrap_or_default();
    let mut message = json!({ "role": "assistant", "reasoning_content": "Hm." });
    let mut reason = "stop";
    if words.ends_with("Call.") {
        let function = json!({ "name": "weather", "arguments": "{\"city\":\"Oslo\"}" });
        let call = json!({ "index": 0, "id": "c1", "type": "function", "function": function });
        message["tool_calls"] = json!([call]);
        reason = "tool_calls";
    } else if request["response_format"]["type"] == "json_schema" {
        message["content"] = json!("{\"text\":\"Hello.\"}");
    } else {
        message["content"] = json!("Hello.");
    }
    let usage = json!({
        "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
        "prompt_tokens_details": { "cached_tokens": 8 },
        "completion_tokens_details": { "reasoning_tokens": 3 },
    });
    let body = |choices: Value| {
        json!({
            "id": "u", "object": "chat.completion", "created": 1, "model": "m",
            "choices": choices, "usage": usage,
        })
    };
    if request["stream"] != true {
        let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
        return Json(body(json!([choice]))).into_response();
    }
    let mut chunks = vec![
        json!({ "choices": [{ "index": 0, "delta": message, "finish_reason": null }] }),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }),
        body(json!([])),
    ]
    .into_iter()
    .map(|chunk| chunk.to_string())
    .collect::<Vec<_>>();
    chunks.push("[DONE]".to_owned());
    let events = chunks
        .into_iter()
        .map(|chunk| Ok::<_, Infallible>(Event::default().data(chunk)));
    Sse::new(stream::iter(events)).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openais_own_client_loses_nothing() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = tests.join("../tower-agent-providers/tests/servers/.venv/bin/python");
    if !is_installed("openai for Python", &python, ".ci/servers") {
        return;
    }
    let provider = provider().await;
    let gateway = start(vec![provider.clone()], 1000).await;
    let output = Command::new(python)
        .arg(tests.join("tests/gateway/sdk.py"))
        .args([gateway, provider])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    let passed = said.lines().filter(|line| line.starts_with("ok "));
    assert_eq!(passed.count(), TESTS, "{said}");
}
