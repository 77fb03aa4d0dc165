//! Sessions that the server forgets, refuses, or whose stream ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tower::{ServiceExt, service_fn};
use tower_agent::ErrorKind;
use tower_agent_mcp::client::{Lifecycle, McpClient};

use crate::http::Http;
use crate::support::{SOON, ask, connected, names};
use crate::told::{Log, Seen, closed_stream, json_rpc, open_stream, result, router, text, told};

/// A way to say that a session is not known, and its name.
type Refusal = (&'static str, fn(&Seen) -> Response);

/// The ways in which servers say that they do not know a session.
fn refusals() -> Vec<Refusal> {
    fn error(status: u16, id: Value, message: &str) -> Response {
        let error = json!({ "code": -32000, "message": message });
        let error = json!({ "jsonrpc": "2.0", "id": id, "error": error });
        (StatusCode::from_u16(status).unwrap(), Json(error)).into_response()
    }
    vec![
        ("404", |_| StatusCode::NOT_FOUND.into_response()),
        ("404 as JSON", |_| {
            error(404, Value::Null, "Session not found")
        }),
        ("410", |_| StatusCode::GONE.into_response()),
        ("400 of the official example", |_| {
            error(
                400,
                Value::Null,
                "Bad Request: No valid session ID provided",
            )
        }),
        ("400 of the official transport", |_| {
            error(400, Value::Null, "Bad Request: Server not initialized")
        }),
        ("400 of another id", |_| {
            error(400, json!("server-error"), "Session has expired")
        }),
        ("400 that names the request", |seen| {
            error(400, seen.id.clone(), "Invalid session id")
        }),
        ("400 as text", |_| {
            let why = "Invalid or missing session ID";
            (StatusCode::BAD_REQUEST, why).into_response()
        }),
        ("400 as a stream", |_| {
            let error = json!({ "code": -32000, "message": "unknown session" });
            let error = json!({ "jsonrpc": "2.0", "id": null, "error": error });
            open_stream(StatusCode::BAD_REQUEST, &[error])
        }),
        ("200", |_| error(200, Value::Null, "unknown session")),
    ]
}

async fn connect(http: &Http) -> McpClient {
    connected(http.client().lifecycle(Lifecycle::Initialize)).await
}

#[tokio::test]
async fn a_refused_session_begins_again_and_the_call_is_made_in_the_new_one() {
    for (of, refusal) in refusals() {
        let forgets = Arc::new(AtomicBool::new(false));
        let forgotten = forgets.clone();
        let (http, log) = told(move |seen| {
            let is_old = seen.session == "s1" && forgotten.load(Ordering::SeqCst);
            (is_old && seen.method != "GET").then(|| refusal(seen))
        })
        .await;
        let client = connect(&http).await;
        forgets.store(true, Ordering::SeqCst);
        // By default a tool changes something: it is called again since it was refused.
        let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
        assert_eq!(answered.expect(of).expect(of).value(), "fine", "{of}");
        assert_eq!(log.count("tools/call"), 2, "{of}");
        assert_eq!(log.count("initialize"), 2, "{of}");
        assert!(ask(&client, "echo", json!({})).await.is_ok(), "{of}");
        assert_eq!(log.count("initialize"), 2, "{of}");
        // What the new session has is read again, once.
        names(&client).await;
        names(&client).await;
        assert_eq!(log.count("tools/list"), 2, "{of}");
    }
}

#[tokio::test]
async fn lists_and_resources_begin_a_refused_session_again() {
    for (of, refusal) in refusals() {
        let forgets = Arc::new(AtomicUsize::new(0));
        let forgotten = forgets.clone();
        let (http, log) = told(move |seen| {
            let sessions = forgotten.load(Ordering::SeqCst);
            let known = format!("s{}", sessions + 1);
            match seen.method.as_str() {
                "initialize" | "notifications/initialized" | "GET" | "server/discover" => None,
                _ if seen.session < known => Some(refusal(seen)),
                "resources/read" => {
                    let note = json!({ "uri": "a://b", "text": "a note" });
                    Some(result(seen, json!({ "contents": [note] })))
                }
                _ => None,
            }
        })
        .await;
        let client = connect(&http).await;
        forgets.store(1, Ordering::SeqCst);
        let read = timeout(SOON, client.read_resource("a://b")).await;
        assert_eq!(read.expect(of).expect(of)[0].as_text(), Some("a note"));
        assert_eq!(log.count("initialize"), 2, "{of}");
        forgets.store(2, Ordering::SeqCst);
        // The list of the second session was not read yet.
        assert_eq!(names(&client).await, ["echo"], "{of}");
        assert_eq!(log.count("initialize"), 3, "{of}");
    }
}

#[tokio::test]
async fn several_calls_at_once_begin_one_new_session() {
    for (of, refusal) in refusals() {
        let (http, log) = told(move |seen| {
            let is_call = seen.method == "tools/call" && seen.session == "s1";
            is_call.then(|| refusal(seen))
        })
        .await;
        let client = connect(&http).await;
        let calls = (0..20).map(|_| ask(&client, "echo", json!({})));
        let answers = timeout(SOON, futures::future::join_all(calls)).await;
        for answer in answers.expect(of) {
            assert_eq!(answer.expect(of).value(), "fine", "{of}");
        }
        assert_eq!(log.count("initialize"), 2, "{of}");
        assert!(log.count("tools/call") <= 40, "{of}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_every_session_is_not_asked_for_ever() {
    for (of, refusal) in refusals() {
        let (http, log) =
            told(move |seen| (seen.method == "tools/call").then(|| refusal(seen))).await;
        let client = connect(&http).await;
        let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
        let error = answered.expect(of).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{of}: {error}");
        assert!(error.is_retryable(), "{of}: {error}");
        assert!(
            error.message().contains("refused the session"),
            "{of}: {error}"
        );
        assert_eq!(log.count("tools/call"), 2, "{of}");
        assert_eq!(log.count("initialize"), 2, "{of}");
    }
}

#[tokio::test]
async fn an_answer_that_speaks_of_a_session_refuses_none() {
    let (http, log) = told(move |seen| {
        let error = json!({ "code": -32000, "message": "the user's session has expired" });
        let error = json!({ "jsonrpc": "2.0", "id": seen.id, "error": error });
        (seen.method == "tools/call").then(|| Json(error).into_response())
    })
    .await;
    let client = connect(&http).await;
    let error = ask(&client, "echo", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert_eq!((log.count("tools/call"), log.count("initialize")), (1, 1));
}

#[tokio::test]
async fn a_notification_that_is_refused_refuses_no_session() {
    let (http, log) = told(move |seen| {
        let error = json!({ "code": -32000, "message": "unknown session" });
        let is_told = seen.method == "notifications/initialized";
        is_told.then(|| json_rpc(StatusCode::BAD_REQUEST, &Value::Null, "error", error))
    })
    .await;
    let client = connect(&http).await;
    for _ in 0..3 {
        assert!(ask(&client, "echo", json!({})).await.is_ok());
    }
    assert_eq!(log.count("initialize"), 1);
}

#[tokio::test]
async fn a_server_that_refuses_every_list_cannot_be_connected() {
    for (of, refusal) in refusals() {
        let (http, log) =
            told(move |seen| (seen.method == "tools/list").then(|| refusal(seen))).await;
        let connecting = http.client().lifecycle(Lifecycle::Initialize).connect();
        let error = timeout(SOON, connecting).await.expect(of).unwrap_err();
        assert!(
            error.message().contains("refused the session"),
            "{of}: {error}"
        );
        assert_eq!(log.count("initialize"), 2, "{of}");
    }
}

#[tokio::test]
async fn a_server_without_a_stream_is_no_server_without_the_session() {
    let (http, log) =
        told(move |seen| (seen.method == "GET").then(|| StatusCode::NOT_FOUND.into_response()))
            .await;
    let client = connect(&http).await;
    while log.count("GET") == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        assert!(ask(&client, "echo", json!({})).await.is_ok());
    }
    assert_eq!(log.count("initialize"), 1);
}

/// The times at which a stream of notifications was opened, of a server whose stream always ends
/// with these events, and of which every `nth` one has a message before.
async fn openings(events: &'static str, nth: usize, count: usize) -> Vec<Instant> {
    let opened: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let enough = Arc::new(Notify::new());
    let opens = opened.clone();
    let told_enough = enough.clone();
    let app = router(Log::default(), move |seen| {
        (seen.method == "GET").then(|| {
            let mut opens = opens.lock().unwrap();
            opens.push(Instant::now());
            if opens.len() == count {
                told_enough.notify_one();
            }
            let said = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            if opens.len().is_multiple_of(nth) {
                return closed_stream(&format!("data: {said}\n\n{events}"));
            }
            closed_stream(events)
        })
    });
    let http = service_fn(move |request: axum::http::Request<Body>| app.clone().oneshot(request));
    let client = McpClient::http("http://localhost/mcp", http).lifecycle(Lifecycle::Initialize);
    let client = connected(client).await;
    enough.notified().await;
    drop(client);
    let opened = opened.lock().unwrap();
    opened[..count].to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_ends_at_once_is_opened_less_and_less() {
    for events in [
        "",
        ": hello\n\n",
        "retry: 10\n\n",
        "id: 1\nretry: 10\ndata:\n\n",
    ] {
        let opened = openings(events, usize::MAX, 20).await;
        let waits: Vec<_> = opened.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(waits[0] < Duration::from_secs(3), "{events:?} {waits:?}");
        assert!(waits[5] > waits[1] * 2, "{events:?} {waits:?}");
        let is_capped = |wait: &Duration| (40..=62).contains(&wait.as_secs());
        assert!(waits[10..].iter().all(is_capped), "{events:?} {waits:?}");
        // Chance keeps the clients of one server apart.
        assert!(
            waits[10..].iter().any(|wait| *wait != waits[10]),
            "{events:?} {waits:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_ends_the_waits_for_a_stream() {
    let opened = openings("retry: 10\n\n", 4, 40).await;
    let longest = opened.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_call_that_always_ends_is_resumed_less_and_less_until_the_answer() {
    let resumed = Arc::new(AtomicUsize::new(0));
    let resumes = resumed.clone();
    let call: Arc<Mutex<Value>> = Arc::default();
    let app = router(Log::default(), move |seen| match seen.method.as_str() {
        "tools/call" => {
            *call.lock().unwrap() = seen.id.clone();
            Some(closed_stream("id: a\nretry: 10\ndata:\n\n"))
        }
        "GET" if seen.last_event.is_some() => {
            if resumes.fetch_add(1, Ordering::SeqCst) < 8 {
                return Some(closed_stream(""));
            }
            // Resumed, it is still the stream of the call, whatever id the answer has.
            assert_ne!(*call.lock().unwrap(), Value::Null);
            let answer = json!({ "jsonrpc": "2.0", "id": null, "result": text("late") });
            Some(open_stream(StatusCode::OK, &[answer]))
        }
        _ => None,
    });
    let http = service_fn(move |request: axum::http::Request<Body>| app.clone().oneshot(request));
    let client = McpClient::http("http://localhost/mcp", http)
        .lifecycle(Lifecycle::Initialize)
        .call_timeout(Duration::from_secs(3600));
    let client = connected(client).await;
    let begun = Instant::now();
    let answered = ask(&client, "echo", json!({})).await.unwrap();
    assert_eq!(answered.value(), "late");
    assert!(
        begun.elapsed() > Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}
