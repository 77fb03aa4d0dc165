//! The answer to a POST belongs to that POST, whatever its id.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use tower_agent::ErrorKind;
use tower_agent_mcp::client::Lifecycle;

use crate::support::{SOON, ask, connected};
use crate::told::{Seen, closed_stream, json_rpc, open_stream, result, sent, text, told};

#[tokio::test]
async fn an_error_that_names_no_request_is_the_outcome_of_its_own() {
    let ids = [
        Some(json!(null)),
        None,
        Some(json!("server-error")),
        Some(json!(0)),
        Some(json!(4711)),
        Some(json!({})),
    ];
    let kinds = [
        (200, ErrorKind::Tool, false),
        (202, ErrorKind::Tool, false),
        (400, ErrorKind::InvalidRequest, false),
        (404, ErrorKind::Connection, true),
        (406, ErrorKind::InvalidRequest, false),
        (413, ErrorKind::InvalidRequest, false),
        (429, ErrorKind::RateLimited, true),
        (503, ErrorKind::Overloaded, true),
    ];
    for (status, kind, is_retryable) in kinds {
        for id in &ids {
            for as_stream in [false, true] {
                let error = json!({ "code": -32000, "message": "slow down" });
                let mut said = json!({ "jsonrpc": "2.0", "id": id, "error": error });
                if id.is_none() {
                    said.as_object_mut().unwrap().remove("id");
                }
                let of = format!("{status} {said} {as_stream}");
                let status = StatusCode::from_u16(status).unwrap();
                let (http, log) = told(move |seen| {
                    let is_call = seen.method == "tools/call";
                    is_call.then(|| sent(status, as_stream, &said))
                })
                .await;
                let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
                let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
                let error = answered.expect(&of).unwrap_err();
                assert_eq!(error.kind(), kind, "{of}: {error}");
                assert_eq!(error.is_retryable(), is_retryable, "{of}: {error}");
                assert!(error.message().contains("slow down"), "{of}: {error}");
                assert!(!error.message().contains("carried out"), "{of}: {error}");
                assert!(log.count("tools/call") <= 2, "{of}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_without_an_id_fails_lists_and_connecting_too() {
    for method in ["initialize", "tools/list"] {
        for status in [200, 400, 429] {
            let (http, _) = told(move |seen| {
                let error = json!({ "code": -32000, "message": "slow down" });
                let status = StatusCode::from_u16(status).unwrap();
                (seen.method == method).then(|| json_rpc(status, &json!(null), "error", error))
            })
            .await;
            for lifecycle in [Lifecycle::Auto, Lifecycle::Initialize] {
                let connecting = http.client().lifecycle(lifecycle).connect();
                let error = timeout(SOON, connecting).await.unwrap().unwrap_err();
                assert!(error.message().contains("slow down"), "{error}");
                assert_eq!(error.is_retryable(), status == 429, "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_result_with_another_id_is_the_result_of_its_own_request() {
    for id in [json!(null), json!("x"), json!(0), json!("0007")] {
        for as_stream in [false, true] {
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": text("mine") });
            let (http, _) = told(move |seen| {
                let is_call = seen.method == "tools/call";
                is_call.then(|| sent(StatusCode::OK, as_stream, &answer))
            })
            .await;
            let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
            let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
            assert_eq!(answered.unwrap().unwrap().value(), "mine");
        }
    }
}

#[tokio::test]
async fn several_messages_in_one_answer_go_where_they_belong() {
    for as_stream in [false, true] {
        let list = Arc::new(AtomicUsize::new(0));
        let lists = list.clone();
        let (http, _) = told(move |seen| match seen.method.as_str() {
            "tools/list" => {
                let name = if lists.fetch_add(1, Ordering::SeqCst) == 0 {
                    "echo"
                } else {
                    "new"
                };
                let tools = json!([{ "name": name, "inputSchema": { "type": "object" } }]);
                Some(result(seen, json!({ "tools": tools })))
            }
            "tools/call" => {
                let messages = json!([
                    { "jsonrpc": "2.0", "method": "notifications/tools/list_changed" },
                    { "jsonrpc": "2.0", "id": null, "error": { "code": 1, "message": "stray" } },
                    { "jsonrpc": "2.0", "id": seen.id, "result": text("mine") },
                ]);
                Some(sent(StatusCode::OK, as_stream, &messages))
            }
            _ => None,
        })
        .await;
        let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
        let answered = timeout(SOON, ask(&client, "echo", json!({})))
            .await
            .unwrap();
        assert_eq!(answered.unwrap().value(), "mine");
        assert_eq!(crate::support::names(&client).await, ["new"]);
    }
}

#[tokio::test]
async fn an_answer_to_another_request_goes_to_that_one() {
    for as_stream in [false, true] {
        let first: Arc<std::sync::Mutex<Option<Value>>> = Arc::default();
        let begun = Arc::new(Notify::new());
        let begins = begun.clone();
        let (http, _) = told(move |seen| {
            if seen.method != "tools/call" {
                return None;
            }
            let waiting = first.lock().unwrap().take();
            let Some(waiting) = waiting else {
                *first.lock().unwrap() = Some(seen.id.clone());
                begins.notify_one();
                return Some(open_stream(StatusCode::OK, &[]));
            };
            let answer = |id: &Value, said: &str| {
                json!({ "jsonrpc": "2.0", "id": id, "result": text(said) })
            };
            let both = json!([answer(&waiting, "first"), answer(&seen.id, "second")]);
            Some(sent(StatusCode::OK, as_stream, &both))
        })
        .await;
        let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
        let second = async {
            begun.notified().await;
            ask(&client, "echo", json!({})).await
        };
        let both = async { tokio::join!(ask(&client, "echo", json!({})), second) };
        let (first, second) = timeout(SOON, both).await.unwrap();
        assert_eq!(first.unwrap().value(), "first");
        assert_eq!(second.unwrap().value(), "second");
    }
}

#[tokio::test]
async fn an_error_that_is_not_quite_one_fails_its_call_with_what_it_says() {
    let errors = [
        json!("slow down"),
        json!({ "message": "slow down" }),
        json!({ "code": "busy", "message": "slow down" }),
        json!({ "code": 1e12, "message": "slow down" }),
        json!({ "code": 7, "message": { "text": "slow down" } }),
    ];
    for error in errors {
        for with_id in [false, true] {
            let said = error.clone();
            let (http, _) = told(move |seen| {
                let id = if with_id { &seen.id } else { &Value::Null };
                let answer = json!({ "id": id, "error": said });
                let is_call = seen.method == "tools/call";
                is_call.then(|| open_stream(StatusCode::OK, &[answer]))
            })
            .await;
            let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
            let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
            let error = answered.unwrap().unwrap_err();
            assert!(error.message().contains("slow down"), "{error}");
        }
    }
}

#[tokio::test]
async fn the_status_of_a_refusal_keeps_its_wait_and_an_answer_its_code() {
    let (http, _) = told(|seen| {
        let error = json!({ "code": -32602, "message": "no such thing" });
        let headers: HeaderMap = [("retry-after".parse().unwrap(), "7".parse().unwrap())]
            .into_iter()
            .collect();
        match seen.method.as_str() {
            "tools/call" => {
                let busy = json_rpc(StatusCode::TOO_MANY_REQUESTS, &seen.id, "error", error);
                Some((headers, busy).into_response())
            }
            "resources/read" => Some(json_rpc(StatusCode::BAD_REQUEST, &seen.id, "error", error)),
            _ => None,
        }
    })
    .await;
    let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
    let busy = ask(&client, "echo", json!({})).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::RateLimited);
    assert_eq!(busy.retry_after(), Some(Duration::from_secs(7)));
    let read = client.read_resource("a://b").await.unwrap_err();
    assert_eq!(read.kind(), ErrorKind::InvalidArguments);
}

#[tokio::test]
async fn a_failure_of_which_nobody_knows_how_far_it_came_is_not_repeated() {
    for status in [
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::GATEWAY_TIMEOUT,
    ] {
        let (http, _) = told(move |seen| {
            let is_call = seen.method == "tools/call";
            is_call.then(|| (status, "oh no").into_response())
        })
        .await;
        let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
        let error = ask(&client, "echo", json!({})).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn half_a_character_over_http_is_replaced_and_loses_nothing() {
    for as_stream in [false, true] {
        for is_error in [false, true] {
            let (http, _) = told(move |seen| {
                // Escaped, as programs write it that cut strings.
                let half = "a \\ud83d b \\ude00 c \\ud83d\\ude00";
                let id = &seen.id;
                let result = format!(r#"{{"content":[{{"type":"text","text":"{half}"}}]}}"#);
                let said = if is_error {
                    format!(
                        r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":1,"message":"{half}"}}}}"#
                    )
                } else {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
                };
                let is_call = seen.method == "tools/call";
                is_call.then(|| {
                    if as_stream {
                        return closed_stream(&format!("data: {said}\n\n"));
                    }
                    ([("content-type", "application/json")], said).into_response()
                })
            })
            .await;
            let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
            let answered = timeout(SOON, ask(&client, "echo", json!({})))
                .await
                .unwrap();
            let whole = "a \u{fffd} b \u{fffd} c \u{1f600}";
            match answered {
                Ok(answer) => assert_eq!(answer.value(), whole),
                Err(error) => assert!(error.message().contains(whole), "{error}"),
            }
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced_and_lose_nothing() {
    let (http, _) = told(move |seen| {
        let mut said = format!(r#"{{"jsonrpc":"2.0","id":{},"#, seen.id).into_bytes();
        said.extend_from_slice(br#""result":{"content":[{"type":"text","text":"a "#);
        // The first half of a character, as it would stand in UTF-8.
        said.extend_from_slice(&[0xed, 0xa0, 0xbd]);
        said.extend_from_slice(br#" b"}]}}"#);
        let is_call = seen.method == "tools/call";
        is_call.then(|| ([("content-type", "application/json")], said).into_response())
    })
    .await;
    let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
    let answer = ask(&client, "echo", json!({})).await.unwrap();
    let text = answer.value().as_str().unwrap();
    assert!(
        text.starts_with("a \u{fffd}") && text.ends_with(" b"),
        "{text}"
    );
}

#[tokio::test]
async fn an_answer_that_is_none_fails_its_call_at_once() {
    let none: [fn(&Seen) -> Value; 5] = [
        |seen| json!({ "jsonrpc": "2.0", "id": seen.id }),
        |_| json!({ "jsonrpc": "2.0", "id": null }),
        |seen| json!({ "jsonrpc": "2.0", "id": seen.id, "result": null }),
        |seen| json!({ "jsonrpc": "2.0", "id": seen.id, "result": null, "error": null }),
        |_| json!({}),
    ];
    for said in none {
        for as_stream in [false, true] {
            let (http, _) = told(move |seen| {
                let is_call = seen.method == "tools/call";
                is_call.then(|| sent(StatusCode::OK, as_stream, &said(seen)))
            })
            .await;
            let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
            let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
            let error = answered.unwrap().unwrap_err();
            assert!(!error.is_retryable(), "{error}");
        }
    }
}

#[tokio::test]
async fn a_message_in_place_of_an_answer_goes_where_it_belongs_and_fails_the_call() {
    let (http, log) = told(|seen| {
        let said = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        (seen.method == "tools/call").then(|| sent(StatusCode::OK, false, &said))
    })
    .await;
    let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
    let answered = timeout(SOON, ask(&client, "echo", json!({}))).await;
    assert_eq!(answered.unwrap().unwrap_err().kind(), ErrorKind::Protocol);
    while log.count("tools/list") < 2 {
        client.tools().await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_error_in_an_event_of_another_name_fails_its_call() {
    let (http, _) = told(move |seen| {
        let said = json!({ "jsonrpc": "2.0", "error": { "code": 1, "message": "slow down" } });
        let events = format!("event: error\ndata: {said}\n\n");
        (seen.method == "tools/call").then(|| closed_stream(&events))
    })
    .await;
    let client = connected(http.client().lifecycle(Lifecycle::Initialize)).await;
    let error = ask(&client, "echo", json!({})).await.unwrap_err();
    assert!(error.message().contains("slow down"), "{error}");
}
