//! Every field of a client's request, with the longest and the oddest that a client might say; and
//! clients that send or read nothing, over HTTP.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_agent::{Request as _, Tool, ToolRequest};
use tower_agent_mcp::PROGRESS;
use tower_agent_mcp::server::{McpHttp, McpServer, McpServerBuilder, ResponseBody};

use crate::serving::{asked, text};

const VERSION: &str = "2026-07-28";

/// The notifications of one call: enough that a long token in each of them shows.
const NOTES: usize = 50;

/// The longest time until a client that reads nothing is let go.
const LET_GO: Duration = Duration::from_secs(121);

/// A server of a tool that tells of its progress, and of one that is never done.
fn server() -> McpServerBuilder {
    let work = Tool::function_with(
        "work",
        "Works.",
        async move |_: Value, call: ToolRequest| {
            for note in 0..NOTES {
                let progress = json!({ "progress": note, "message": "on" });
                call.context().emit(PROGRESS, progress).await;
            }
            "done"
        },
    );
    let wait = Tool::function_with(
        "wait",
        "Waits.",
        async move |_: Value, call: ToolRequest| {
            call.context()
                .emit(PROGRESS, json!({ "progress": 1 }))
                .await;
            std::future::pending::<()>().await;
        },
    );
    let builder = McpServer::builder("extremes", "1.0.0");
    builder.tool(work).tool(wait).principal(|parts| {
        let user = parts.headers.get("user")?.to_str().ok()?;
        Some(user.to_owned())
    })
}

fn http(builder: McpServerBuilder) -> McpHttp {
    builder.build().unwrap().into_http()
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    })
}

fn call(tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta() });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

fn post<B>(user: &str, tool: &str, body: B) -> Request<B> {
    Request::post("/mcp")
        .header("host", "localhost")
        .header("user", user)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(body)
        .unwrap()
}

async fn ask(server: &McpHttp, user: &str, tool: &str, body: &Value) -> Response<ResponseBody> {
    let body = Full::new(Bytes::from(body.to_string()));
    server
        .clone()
        .oneshot(post(user, tool, body))
        .await
        .unwrap()
}

async fn read(response: Response<ResponseBody>) -> (StatusCode, String) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

/// A request in which a value stands in one field.
type Place = (&'static str, fn(Value) -> Value);

fn param(field: &str, value: Value) -> Value {
    let mut call = call("work");
    call["params"][field] = value;
    call
}

fn in_meta(field: &str, value: Value) -> Value {
    let mut call = call("work");
    call["params"]["_meta"][field] = value;
    call
}

const PLACES: [Place; 12] = [
    ("id", |value| {
        let mut call = call("work");
        call["id"] = value;
        call
    }),
    ("method", |value| {
        let mut call = call("work");
        call["method"] = value;
        call
    }),
    ("name", |value| param("name", value)),
    ("arguments", |value| param("arguments", value)),
    ("an argument", |value| {
        param("arguments", json!({ "a": value }))
    }),
    ("requestState", |value| param("requestState", value)),
    ("inputResponses", |value| {
        param("inputResponses", json!({ "a": value }))
    }),
    ("another parameter", |value| param("other", value)),
    ("progressToken", |value| in_meta("progressToken", value)),
    ("name of the client", |value| {
        let client = json!({ "name": value, "version": value });
        in_meta("io.modelcontextprotocol/clientInfo", client)
    }),
    ("capabilities", |value| {
        in_meta("io.modelcontextprotocol/clientCapabilities", value)
    }),
    ("traceparent", |value| in_meta("traceparent", value)),
];

fn values() -> Vec<Value> {
    let long = "x".repeat(1 << 20);
    vec![
        json!(""),
        json!(long),
        json!("\u{1}".repeat(1 << 17)),
        json!("\u{0}\u{202e}\u{1b}[31m\r\ndata: x\n\n"),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(f64::MAX),
        json!(null),
        json!([]),
        json!({}),
        json!(vec!["x"; 30_000]),
        json!({ "type": long }),
    ]
}

#[tokio::test]
async fn nothing_that_a_client_says_multiplies_or_is_a_fault_of_the_server() {
    let server = http(server());
    let mut broken = Vec::new();
    for (place, build) in PLACES {
        for (number, value) in values().into_iter().enumerate() {
            let body = build(value);
            let (status, text) = read(ask(&server, "ada", "work", &body).await).await;
            let most = body.to_string().len() * 2 + NOTES * 2048 + 4096;
            if text.len() > most || status.is_server_error() {
                let length = text.len();
                broken.push(format!(
                    "{place}, value {number}: {status}, {length} bytes: {text:.200}"
                ));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let (_, text) = read(ask(&server, "ada", "work", &call("work")).await).await;
    assert!(text.contains("\"done\""), "{text}");
}

#[tokio::test]
async fn the_limit_of_a_token_is_exact_and_named_in_the_refusal() {
    let server = http(server());
    for length in [1024, 1025] {
        let body = in_meta("progressToken", json!("x".repeat(length)));
        let (_, text) = read(ask(&server, "ada", "work", &body).await).await;
        let is_refused = text.contains("longer than 1024 bytes");
        assert_eq!(is_refused, length > 1024, "{text:.300}");
    }
}

/// Over a stream, where rmcp has no timer of its own: it would not know of a paused clock.
#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_an_error_with_the_default_as_well() {
    let minutes = server().max_run_time(Duration::from_secs(600));
    for (server, time) in [(minutes, 600), (server(), 3600)] {
        let running = asked(&server.build().unwrap()).await;
        let start = Instant::now();
        let result = running.call_tool(CallToolRequestParams::new("wait")).await;
        let result = result.unwrap();
        assert_eq!(result.is_error, Some(true));
        assert!(text(&result).contains("took longer than"), "{result:?}");
        assert_eq!(start.elapsed().as_secs(), time);
    }
}

#[tokio::test]
async fn there_are_so_many_calls_at_once_and_so_many_of_one_user() {
    let server = http(server().max_runs(3).max_runs_per_principal(2));
    let body = call("wait");
    let wait = |user| ask(&server, user, "wait", &body);
    let first = wait("ada").await;
    let _second = wait("ada").await;
    let too_many = wait("ada").await;
    assert_eq!(too_many.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(too_many.headers().contains_key("retry-after"));
    let other = wait("bob").await;
    assert_eq!(other.status(), StatusCode::OK);
    let full = wait("bob").await;
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(full.headers().contains_key("retry-after"));
    drop(first);
    assert_eq!(wait("ada").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go() {
    let server = http(server().max_runs(1));
    for reads in [false, true] {
        let mut response = ask(&server, "ada", "wait", &call("wait")).await;
        if reads {
            response.body_mut().frame().await.unwrap().unwrap();
        }
        assert_eq!(
            ask(&server, "bob", "wait", &call("wait")).await.status(),
            503
        );
        sleep(LET_GO).await;
        assert_eq!(
            ask(&server, "bob", "work", &call("work")).await.status(),
            200
        );
        // It is cut off, and not taken for the whole.
        assert!(response.into_body().collect().await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_a_byte_at_a_time_is_408_and_keeps_no_place() {
    let server = http(server().max_runs(1));
    let bytes = stream::unfold((), async |()| {
        sleep(Duration::from_secs(5)).await;
        Some((
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))),
            (),
        ))
    });
    let request = post("ada", "work", StreamBody::new(Box::pin(bytes)));
    let start = Instant::now();
    let response = server.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(start.elapsed().as_secs(), 30);
    drop(response);
    assert_eq!(
        ask(&server, "ada", "work", &call("work")).await.status(),
        200
    );
}

#[tokio::test]
async fn the_size_of_a_request_is_exact_and_that_of_the_first_of_a_session_is_small() {
    let server = http(server().max_request(100_000));
    let body = call("work").to_string();
    for (size, status) in [
        (100_000, StatusCode::OK),
        (100_001, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let body = format!("{body}{}", " ".repeat(size - body.len()));
        let whole = Full::new(Bytes::from(body.clone()));
        let response = server.clone().oneshot(post("ada", "work", whole)).await;
        assert_eq!(response.unwrap().status(), status);
        // Without a length.
        let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from(body)))];
        let request = post("ada", "work", StreamBody::new(stream::iter(frames)));
        assert_eq!(
            server.clone().oneshot(request).await.unwrap().status(),
            status
        );
    }
    for (length, status) in [
        (10, StatusCode::OK),
        (70_000, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let client = json!({ "name": "x".repeat(length), "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let first = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let mut request = post("ada", "work", Full::new(Bytes::from(first.to_string())));
        for name in ["mcp-protocol-version", "mcp-method", "mcp-name"] {
            request.headers_mut().remove(name);
        }
        assert_eq!(
            server.clone().oneshot(request).await.unwrap().status(),
            status
        );
    }
}
