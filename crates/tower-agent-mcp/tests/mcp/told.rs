//! A server over HTTP of an earlier protocol version, with sessions and the tool `echo`, that
//! answers a request with what a test tells it to.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::http::Http;
use crate::support::tool;

/// A request, as the server sees it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The method of JSON-RPC, or that of HTTP if it is another than `POST`.
    pub(crate) method: String,
    pub(crate) session: String,
    pub(crate) id: Value,
    pub(crate) params: Value,
    pub(crate) last_event: Option<String>,
}

/// The requests that a server has seen.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    pub(crate) fn count(&self, method: &str) -> usize {
        let seen = self.0.lock().unwrap();
        seen.iter().filter(|seen| seen.method == method).count()
    }
}

/// Serves what `says` returns, and the usual for `None`. Sessions are named `s1`, `s2` and so on.
pub(crate) async fn told(
    says: impl Fn(&Seen) -> Option<Response> + Clone + Send + Sync + 'static,
) -> (Http, Log) {
    let log = Log::default();
    let app = router(log.clone(), says);
    (Http::serve(app).await, log)
}

pub(crate) fn router(
    log: Log,
    says: impl Fn(&Seen) -> Option<Response> + Clone + Send + Sync + 'static,
) -> Router {
    let answer = move |method: Method, headers: HeaderMap, body: String| {
        let log = log.clone();
        let says = says.clone();
        async move {
            let message: Value = serde_json::from_str(&body).unwrap_or_default();
            let header = |name: &str| {
                let value = headers.get(name).and_then(|value| value.to_str().ok());
                value.map(str::to_owned)
            };
            let seen = Seen {
                method: match message["method"].as_str() {
                    Some(method) => method.to_owned(),
                    None => method.to_string(),
                },
                session: header("mcp-session-id").unwrap_or_default(),
                id: message["id"].clone(),
                params: message["params"].clone(),
                last_event: header("last-event-id"),
            };
            log.0.lock().unwrap().push(seen.clone());
            if let Some(said) = says(&seen) {
                return said;
            }
            match seen.method.as_str() {
                "server/discover" => {
                    let error = json!({ "code": -32601, "message": "unknown" });
                    json_rpc(StatusCode::OK, &seen.id, "error", error)
                }
                "initialize" => {
                    let number = log.count("initialize");
                    let result = json!({
                        "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "told", "version": "1" },
                    });
                    let answer = json_rpc(StatusCode::OK, &seen.id, "result", result);
                    ([("mcp-session-id", format!("s{number}"))], answer).into_response()
                }
                "tools/list" => result(&seen, json!({ "tools": [tool("echo")] })),
                "tools/call" => result(&seen, text("fine")),
                "GET" => StatusCode::METHOD_NOT_ALLOWED.into_response(),
                _ => StatusCode::ACCEPTED.into_response(),
            }
        }
    };
    Router::new().route("/mcp", any(answer))
}

/// The result of a call that is this text.
pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

pub(crate) fn result(to: &Seen, result: Value) -> Response {
    json_rpc(StatusCode::OK, &to.id, "result", result)
}

pub(crate) fn json_rpc(status: StatusCode, id: &Value, field: &str, value: Value) -> Response {
    let answer = json!({ "jsonrpc": "2.0", "id": id, field: value });
    (status, Json(answer)).into_response()
}

/// A message as JSON, or in a stream that stays open.
pub(crate) fn sent(status: StatusCode, as_stream: bool, message: &Value) -> Response {
    if as_stream {
        return open_stream(status, std::slice::from_ref(message));
    }
    (status, Json(message.clone())).into_response()
}

/// A stream of these messages, which stays open after them.
pub(crate) fn open_stream(status: StatusCode, messages: &[Value]) -> Response {
    let events: String = messages
        .iter()
        .map(|message| format!("data: {message}\n\n"))
        .collect();
    let events = futures::stream::iter([Ok::<_, std::io::Error>(events)]);
    let body = futures::StreamExt::chain(events, futures::stream::pending());
    let headers = [("content-type", "text/event-stream")];
    (status, headers, Body::from_stream(body)).into_response()
}

/// A stream of these events, which ends after them.
pub(crate) fn closed_stream(events: &str) -> Response {
    ([("content-type", "text/event-stream")], events.to_owned()).into_response()
}
