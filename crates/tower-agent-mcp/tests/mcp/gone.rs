//! Clients that are gone while their call runs, and answers that are too large for a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tower_agent::{Request, Tool, ToolRequest};
use tower_agent_mcp::PROGRESS;
use tower_agent_mcp::server::{McpServer, McpServerBuilder};

use crate::http::Http;

/// Far more than it takes, and less than the 5 s after which rmcp gives up what still runs.
const SOON: Duration = Duration::from_secs(4);

struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A server of a tool that reports progress and is never done, and what happens to it.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    dropped: Arc<Notify>,
}

impl Slow {
    fn server(&self) -> McpServerBuilder {
        let this = self.clone();
        let slow = Tool::function_with("slow", "", move |_: Value, call: ToolRequest| {
            let guard = Dropped(this.dropped.clone());
            let begins = this.begun.clone();
            async move {
                call.context()
                    .emit(PROGRESS, json!({ "progress": 1 }))
                    .await;
                begins.notify_one();
                std::future::pending::<()>().await;
                drop(guard);
            }
        });
        McpServer::builder("slow", "1.0.0").tool(slow)
    }

    async fn is_dropped_soon(&self) -> bool {
        timeout(SOON, self.dropped.notified()).await.is_ok()
    }
}

async fn serve(server: McpServerBuilder) -> Http {
    let service = server.build().unwrap().into_http();
    Http::serve(Router::new().route_service("/mcp", service)).await
}

/// Sends a request on a connection of its own.
async fn send(http: &Http, method: &str, headers: &[(&str, &str)], body: &Value) -> TcpStream {
    let mut connection = TcpStream::connect(http.address).await.unwrap();
    let body = body.to_string();
    let mut request = format!(
        "{method} /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("\r\n{body}"));
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// The headers of a client of this version, in a new session if there are sessions.
async fn headers(http: &Http, version: &str) -> Vec<(&'static str, String)> {
    if version == "2026-07-28" {
        let headers = [
            ("mcp-protocol-version", version),
            ("mcp-method", "tools/call"),
            ("mcp-name", "slow"),
        ];
        return headers.map(|(name, value)| (name, value.to_owned())).into();
    }
    let client = json!({ "name": "raw", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let mut answer = BufReader::new(send(http, "POST", &[], &initialize).await);
    let mut line = String::new();
    let session = loop {
        line.clear();
        answer.read_line(&mut line).await.unwrap();
        assert_ne!(line, "\r\n", "no session");
        if let Some(session) = line.strip_prefix("mcp-session-id: ") {
            break session.trim().to_owned();
        }
    };
    let headers = vec![
        ("mcp-protocol-version", version.to_owned()),
        ("mcp-session-id", session),
    ];
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let told = send(http, "POST", &borrowed(&headers), &initialized).await;
    let mut line = String::new();
    BufReader::new(told).read_line(&mut line).await.unwrap();
    assert!(line.contains(StatusCode::ACCEPTED.as_str()), "{line}");
    headers
}

fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    headers
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect()
}

fn call(progress: bool) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    if progress {
        meta["progressToken"] = 1.into();
    }
    let params = json!({ "name": "slow", "arguments": {}, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

/// As the client of an earlier version calls.
fn call_in(version: &str, progress: bool) -> Value {
    let mut call = call(progress);
    if version != "2026-07-28" {
        let token = if progress {
            json!({ "progressToken": 1 })
        } else {
            json!({})
        };
        call["params"]["_meta"] = token;
    }
    call
}

const VERSIONS: [&str; 3] = ["2025-03-26", "2025-11-25", "2026-07-28"];

#[tokio::test]
async fn a_call_over_http_is_dropped_with_its_connection() {
    for version in VERSIONS {
        for json in [false, true] {
            // Before the head of the response, and after a part of its body.
            for progress in [false, true] {
                let slow = Slow::default();
                let http = serve(slow.server().answer_with_json(json)).await;
                let headers = headers(&http, version).await;
                let call = call_in(version, progress);
                let mut connection = send(&http, "POST", &borrowed(&headers), &call).await;
                slow.begun.notified().await;
                if progress {
                    let mut read = String::new();
                    while !read.contains("notifications/progress") {
                        let mut piece = [0; 4096];
                        let length = connection.read(&mut piece).await.unwrap();
                        read.push_str(&String::from_utf8_lossy(&piece[..length]));
                    }
                    // There is nothing to come back for.
                    assert!(!read.contains("\nid:"), "{read}");
                    assert!(!read.contains("\nretry:"), "{read}");
                }
                drop(connection);
                assert!(slow.is_dropped_soon().await, "{version} {json} {progress}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_is_dropped_with_its_session() {
    for progress in [false, true] {
        let slow = Slow::default();
        let http = serve(slow.server()).await;
        let headers = headers(&http, "2025-11-25").await;
        let call = call_in("2025-11-25", progress);
        let _call = send(&http, "POST", &borrowed(&headers), &call).await;
        slow.begun.notified().await;
        let _deleted = send(&http, "DELETE", &borrowed(&headers), &Value::Null).await;
        assert!(slow.is_dropped_soon().await, "{progress}");
    }
}

#[tokio::test]
async fn one_clients_end_drops_no_call_of_another() {
    let slow = Slow::default();
    let http = serve(slow.server()).await;
    let headers = headers(&http, "2025-11-25").await;
    let call = call_in("2025-11-25", false);
    let first = send(&http, "POST", &borrowed(&headers), &call).await;
    slow.begun.notified().await;
    let mut other = call.clone();
    other["id"] = 2.into();
    let second = send(&http, "POST", &borrowed(&headers), &other).await;
    slow.begun.notified().await;
    drop(first);
    assert!(slow.is_dropped_soon().await);
    assert!(slow.dropped.notified().now_or_never().is_none());
    drop(second);
    assert!(slow.is_dropped_soon().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_stream_has_five_seconds_after_its_end() {
    let slow = Slow::default();
    let server = slow.server().build().unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move { server.serve(theirs).await });
    let (read, mut write) = tokio::io::split(ours);
    let client = json!({ "name": "raw", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        call_in("2025-11-25", false),
    ] {
        write
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }
    slow.begun.notified().await;
    let gone = Instant::now();
    drop((read, write));
    slow.dropped.notified().await;
    assert!(
        gone.elapsed() <= Duration::from_secs(5),
        "{:?}",
        gone.elapsed()
    );
    serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_is_json_and_a_slow_one_in_a_session_stays_a_stream() {
    let begun = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    let (begins, goes) = (begun.clone(), go.clone());
    let large = Tool::function("slow", "", move |size: usize| {
        let (begins, goes) = (begins.clone(), goes.clone());
        async move {
            begins.notify_one();
            goes.notified().await;
            "x".repeat(size)
        }
    });
    let server = McpServer::builder("large", "1.0.0")
        .tool(large)
        .build()
        .unwrap();
    let service = server.into_http();
    let send = |headers: &[(&str, String)], body: Value| {
        let mut request = axum::http::Request::post("http://localhost/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(body.to_string()).unwrap();
        let response = tower::ServiceExt::oneshot(service.clone(), request);
        async { response.await.unwrap() }
    };
    for version in VERSIONS {
        let is_session = version != "2026-07-28";
        let mut headers = vec![("mcp-protocol-version", version.to_owned())];
        if is_session {
            let client = json!({ "name": "raw", "version": "1" });
            let params =
                json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
            let initialize =
                json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
            let response = send(&headers, initialize).await;
            let session = response.headers()["mcp-session-id"].to_str().unwrap();
            headers.push(("mcp-session-id", session.to_owned()));
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            send(&headers, initialized).await;
        } else {
            headers.push(("mcp-method", "tools/call".to_owned()));
            headers.push(("mcp-name", "slow".to_owned()));
        }
        for (size, seconds, is_json) in [
            (10, 0, is_session),
            (1 << 20, 0, true),
            (1 << 20, 20, true),
            (1 << 20, 40, !is_session),
        ] {
            let mut call = call_in(version, false);
            call["params"]["arguments"] = json!({ "value": size });
            let slowly = async {
                begun.notified().await;
                // Not by waiting: the stream's own clock is another.
                tokio::time::advance(Duration::from_secs(seconds)).await;
                if is_json || seconds == 0 {
                    go.notify_one();
                }
            };
            let (response, ()) = tokio::join!(send(&headers, call), slowly);
            if !is_json && seconds > 0 {
                go.notify_one();
            }
            let kind = response.headers()["content-type"]
                .to_str()
                .unwrap()
                .to_owned();
            let of = format!("{version} {size} {seconds}: {kind}");
            assert_eq!(kind == "application/json", is_json, "{of}");
            let body = http_body_util::BodyExt::collect(response.into_body()).await;
            let body = String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap();
            let message = body
                .lines()
                .find_map(|line| line.strip_prefix("data:").or(is_json.then_some(line)))
                .unwrap();
            let message: Value = serde_json::from_str(message).unwrap();
            assert_eq!(message["id"], 1, "{of}");
            let text = message["result"]["content"][0]["text"].as_str().unwrap();
            assert_eq!(text.len(), size, "{of}");
        }
    }
}
